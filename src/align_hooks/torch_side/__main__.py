"""``python -m align_hooks.torch_side script.py …`` runs the script as ``python script.py …`` does, with hooks."""

import sys

from align_hooks.job.entry import launch

sys.exit(launch("torch", sys.argv[1:]))
