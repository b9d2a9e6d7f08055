"""A script that was written for MindSpore 2.4, run as it is on a newer MindSpore, which gives a Cell no ``cast`` any more.

``python cells_with_cast.py PATH/script.py …``. MindFormers 1.3 calls ``self.cast`` in Cells that make none of their own; MindSpore's
own text on Cell still names that attribute.
"""

import runpy
import sys
from pathlib import Path

from mindspore import nn, ops

nn.Cell.cast = ops.Cast()

sys.argv = sys.argv[1:]
sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
runpy.run_path(sys.argv[0], run_name="__main__")
