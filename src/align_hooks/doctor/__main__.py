"""``python -m align_hooks.doctor [FILE]``: the doctor where the ``cli`` extra is not installed, as on many training nodes."""

from __future__ import annotations

import os
import sys

from align_hooks.doctor.examination import examine
from align_hooks.errors import AlignHooksError
from align_hooks.process.script import report
from align_hooks.process.streams import forgive
from align_hooks.report.doctor_text import judged, lines


def main(arguments: list[str]) -> int:
    """Examine this machine and print the examination; returns the exit code."""
    forgive()
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print("usage: python -m align_hooks.doctor [SCRIPT | YAML | RUN]", file=sys.stderr)
        return 2
    try:
        examination = examine(arguments[0] if arguments else None, os.environ)
    except AlignHooksError as error:
        report(error)
        return error.exit_code
    word, _, text = judged(examination)
    print("\n".join([f"{word}: {text}", *lines(examination)]))
    return examination.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
