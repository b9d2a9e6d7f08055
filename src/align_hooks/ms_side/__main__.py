"""``python -m align_hooks.ms_side script.py …`` runs the script as ``python script.py …`` does, with hooks."""

import sys

from align_hooks.job.entry import launch

sys.exit(launch("ms", sys.argv[1:]))
