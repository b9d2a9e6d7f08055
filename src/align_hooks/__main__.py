"""``python -m align_hooks`` is ``align-hooks``."""

from align_hooks.cli import main

main()
