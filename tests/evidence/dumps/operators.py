"""A dump of MindSpore's as Ascend makes it at ``jit_level`` O0 and O1, with ``statistic.csv``, which no CPU can make.

Names of files and columns are those of MindSpore 2.3 to 2.9 (``tensor_stat_dump``, ``dump_json_parser``) and its documentation. The dump of
a CPU is made by MindSpore itself in ``tests/real/test_dumps.py``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

NETWORK = "Default/network-MFPipelineWithLossScaleCell/network-LlamaForCausalLM"
LAYER = f"{NETWORK}/model-LlamaModel/layers-CellList/0-LLamaDecodeLayer"
HEAD = "Op Type,Op Name,Task ID,Stream ID,Timestamp,IO,Slot,Data Size,Data Type,Shape"
OPERATORS = (
    (f"{NETWORK}/model-LlamaModel/tok_embeddings-LlamaEmbedding/Gather-op0", ("ids", "embedding")),
    (f"{LAYER}/attention_norm-LlamaRMSNorm/RmsNorm-op0", ("embedding", "normed")),
    (f"{LAYER}/attention-LLamaAttention/wq-Linear/MatMul-op0", ("normed", "queries")),
    (f"{LAYER}/attention-LLamaAttention/wo-Linear/MatMul-op0", ("core", "projected")),
    (f"{LAYER}/Add-op0", ("embedding", "residual")),
    (f"{LAYER}/ffn_norm-LlamaRMSNorm/RmsNorm-op0", ("residual", "normed_again")),
    (f"{LAYER}/feed_forward-LlamaFeedForward/w1-Linear/MatMul-op0", ("normed_again", "gate")),
    (f"{LAYER}/feed_forward-LlamaFeedForward/w2-Linear/MatMul-op0", ("activation", "down")),
    (f"{LAYER}/Add-op1", ("residual", "block")),
    (f"Gradients/{LAYER}/attention-LLamaAttention/wq-Linear/Grad_MatMul/MatMul-op0", ("block", "queries")),
)
"""Name of each operator in the order of a run, its input and its output."""
FLAT = {"queries", "core", "projected", "gate", "activation", "down"}
"""What a product has: the tokens of all rows, one after the other."""


@dataclass
class Written:
    """A dump, and its tensors [rows, sequence, width] by their names."""

    path: Path
    tensors: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def iteration(self) -> Path:
        return self.path / "rank_0" / "llama" / "0" / "3"


def write(path: Path, *, saved: str = "full", operators: Sequence[tuple[str, tuple[str, str]]] = OPERATORS, hide: bool = False) -> Written:
    """Write a dump of step 3. ``hide`` gives files numbers for names, as where names are too long."""
    random = np.random.default_rng(0)
    dump = Written(path)
    dump.iteration.mkdir(parents=True)
    names = {name for _, pair in operators for name in pair}
    dump.tensors = {name: random.standard_normal((2, 3, 4)).astype(np.float32) for name in sorted(names)}
    rows, mapping, moment = [], [], 1_700_000_000_000_000
    for operator, pair in operators:
        kind = operator.rpartition("/")[2].partition("-")[0]
        for side, name in zip(("input", "output"), pair, strict=True):
            moment += 7
            tensor = dump.tensors[name].reshape(6, 4) if name in FLAT else dump.tensors[name]
            scope = operator.replace("/", "_")
            file = f"{kind}.{scope}.0.0.{moment}.{side}.0.DefaultFormat.float32.npy"
            if saved in ("tensor", "full"):
                hidden = f"{moment}.npy" if hide else file
                np.save(dump.iteration / hidden, tensor)
                mapping += [f"{hidden},{file}"] * hide
            shape = ",".join(map(str, tensor.shape))
            said = f"{tensor.max()},{tensor.min()},{tensor.mean()},{np.linalg.norm(tensor)}"
            rows.append(f'{kind},{scope},0,0,{moment},{side},0,{tensor.nbytes},float32,"({shape})",{said},')
    if saved in ("statistic", "full"):
        head = f"{HEAD},Max Value,Min Value,Avg Value,L2Norm Value"
        (dump.iteration / "statistic.csv").write_text("\n".join([head, *rows]) + "\n")
    if mapping:
        (dump.iteration / "mapping.csv").write_text("\n".join(mapping) + "\n")
    return dump
