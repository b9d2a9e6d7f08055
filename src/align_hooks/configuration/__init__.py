"""What each side was told: launch scripts, argument lists, YAML files and records, read into one form. Runs nothing that it reads."""
