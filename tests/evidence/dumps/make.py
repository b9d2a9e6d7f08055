"""Make the dumps of ``golden``: ``python tests/evidence/dumps/make.py``, with both frameworks and mindstudio-probe installed.

msprobe dumps one forward and backward pass of a Hugging Face Llama of one layer, and of a Cell of MindSpore in PyNative mode.
MindSpore has no kernel of ``mint.norm`` on a CPU, which msprobe takes for its statistics: a plain one stands in.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parent / "golden"
TORCH = """
import sys, torch
from msprobe.pytorch import PrecisionDebugger
from transformers import LlamaConfig, LlamaForCausalLM

debugger = PrecisionDebugger(config_path=sys.argv[1])
torch.manual_seed(0)
config = dict(vocab_size=16, hidden_size=8, intermediate_size=6, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1)
model = LlamaForCausalLM(LlamaConfig(**config, attn_implementation="eager"))
tokens = torch.randint(0, 16, (2, 3))
debugger.start(model=model)
model(input_ids=tokens, labels=tokens, use_cache=False).loss.backward()
debugger.stop()
"""
MINDSPORE = """
import sys
import mindspore
import numpy as np
from mindspore import Tensor, nn

mindspore.set_context(mode=mindspore.PYNATIVE_MODE)
mindspore.set_device("CPU")
mindspore.mint.norm = lambda tensor: mindspore.ops.sqrt(mindspore.ops.square(tensor).sum())
from msprobe.mindspore import PrecisionDebugger


class Layer(nn.Cell):
    def __init__(self):
        super().__init__()
        self.attention_norm = nn.Dense(4, 4)
        self.attention = nn.Cell()
        self.attention.insert_child_to_cell("wo", nn.Dense(4, 4))

    def construct(self, x):
        return x + self.attention.wo(self.attention_norm(x))


class Model(nn.Cell):
    def __init__(self):
        super().__init__()
        self.layers = nn.CellList([Layer()])

    def construct(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.model = Model()

    def construct(self, x):
        return self.model(x).sum()


mindspore.set_seed(0)
debugger = PrecisionDebugger(config_path=sys.argv[1])
network = Network()
step = mindspore.value_and_grad(network, None, network.trainable_params())
debugger.start(model=network)
step(Tensor(np.random.RandomState(0).randn(2, 3, 4).astype(np.float32)))
debugger.stop()
"""


def made(script: str, task: str, where: Path, level: str = "L0") -> Path:
    """Run a script that dumps with msprobe; returns the directory of its step."""
    where.mkdir(parents=True, exist_ok=True)
    chosen = {"scope": [], "list": [], "data_mode": ["all"]}
    config = {"task": task, "dump_path": str(where / "dump"), "rank": [], "step": [], "level": level, "async_dump": False}
    (where / "config.json").write_text(json.dumps(config | {"statistics": chosen | {"summary_mode": "statistics"}, "tensor": chosen}))
    (where / "script.py").write_text(script)
    subprocess.run([sys.executable, "script.py", "config.json"], cwd=where, check=True, capture_output=True)
    return where / "dump" / "step0"


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, script in (("torch", TORCH), ("mindspore", MINDSPORE)):
            for task in ("tensor", "statistics"):
                (process,) = made(script, task, Path(folder) / f"{name}_{task}").iterdir()
                target = GOLDEN / f"{name}_{task}" / "step0" / "proc0"
                shutil.rmtree(target.parents[1], ignore_errors=True)
                shutil.copytree(process, target, ignore=shutil.ignore_patterns("stack.json", "*parameters*"))
                text = (target / "dump.json").read_text().replace(str(process), "/dump")
                (target / "dump.json").write_text(text)


if __name__ == "__main__":
    main()
