"""What MindSpore itself writes, and how it reads: ``python mindspore_checkpoints.py save|load FOLDER FILE``.

``save`` makes ``a.ckpt`` and ``a.safetensors`` of the arrays of ``FILE``, an npz of bits; names of bf16 begin with ``bf16/``. ``load``
turns both files back into such an npz.
"""

import sys
from pathlib import Path

import mindspore as ms
import numpy as np


def tensor(name: str, bits: np.ndarray) -> ms.Tensor:
    if name.startswith("bf16/"):
        return ms.Tensor((bits.astype(np.uint32) << 16).view(np.float32)).astype(ms.bfloat16)
    return ms.Tensor(bits.view({4: np.float32, 2: np.float16}[bits.itemsize]))


def bits(parameter: ms.Parameter) -> np.ndarray:
    if parameter.dtype == ms.bfloat16:
        return (parameter.astype(ms.float32).asnumpy().view(np.uint32) >> 16).astype(np.uint16)
    array = parameter.asnumpy()
    return array.view({4: np.uint32, 2: np.uint16}[array.itemsize])


what, folder, file = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
if what == "save":
    given = np.load(file)
    listed = [{"name": name.removeprefix("bf16/"), "data": tensor(name, given[name])} for name in given.files]
    for form in ("ckpt", "safetensors"):
        ms.save_checkpoint(listed, str(folder / f"a.{form}"), format=form)
else:
    for form in ("ckpt", "safetensors"):
        loaded = ms.load_checkpoint(str(folder / f"a.{form}"), format=form)
        found = {("bf16/" if one.dtype == ms.bfloat16 else "") + name: bits(one) for name, one in loaded.items()}
        np.savez(file.with_name(f"{form}.npz"), **found)
