"""What a machine has, what fits, and what would stop a run, before it is started. Imports no framework; its child processes do."""
