"""align_hooks from Python: ``align_hooks.compare`` and its result, for scripts, prompts and notebooks."""
