"""``python -m align_hooks`` is ``align-hooks``. ``run`` loads nothing that it does not need."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command that the arguments name."""
    if sys.argv[1:2] == ["run"]:
        from align_hooks.job.run import main as run

        sys.exit(run(sys.argv[2:]))
    from align_hooks.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
