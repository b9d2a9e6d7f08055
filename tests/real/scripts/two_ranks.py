"""Train by MindFormers' PyNative trainer in processes of a CPU: ``two_ranks.py SCRIPT [ARGUMENT ...]``, by msrun."""

import runpy
import sys
from pathlib import Path

import hyper_stand_in

if __name__ == "__main__":
    hyper_stand_in.install()
    sys.argv = sys.argv[1:]
    sys.path.insert(0, str(Path(sys.argv[0]).parent))
    runpy.run_path(sys.argv[0], run_name="__main__")
