"""Evidence that was there before align_hooks was: the frameworks' own logs, made into records. Imports no framework."""
