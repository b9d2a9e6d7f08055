"""align_hooks from Python: what ``align_hooks.compare`` does, and what it gives to whoever sits at a prompt or in a notebook."""
