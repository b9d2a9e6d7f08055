"""What a recorded run hands to another: its batches, step on step, and its weights. Framework-free."""
