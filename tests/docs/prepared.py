"""What lies in a directory before the commands of a page are run in it: the user's own scripts, and records, logs, dumps, checkpoints.

A function each, by its name in ``commands.py``. What trains is the small pair of ``launch/``; what is a record already is made up by
``synthetic.py``, and so are logs, curves, dumps and checkpoints by the tests of what reads them.
"""

import atexit
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from functools import cache
from pathlib import Path

import yaml

from docs.blocks import ROOT, blocks
from synthetic import LAUNCH, Synthetic, routed

FAMILIES = LAUNCH / "families"
TWO_DEVICES = {"use_parallel": True, "parallel": {"parallel_mode": 0, "gradients_mean": True}, "parallel_config": {"data_parallel": 2}}
"""What MindFormers' YAML says for two of msrun's workers."""


# ---- what trains


def pair(where: Path) -> None:
    """A user's scripts of both frameworks, their data, and the model of ``launch/``."""
    scripts(where, LAUNCH / "llama.args", LAUNCH / "llama.yaml")


def launch(where: Path) -> None:
    """What a checkout has."""
    (where / "launch").symlink_to(LAUNCH)


def experts(where: Path) -> None:
    """The same of a model with experts."""
    scripts(where, FAMILIES / "deepseek_v3.args", FAMILIES / "deepseek_v3.yaml")


def parallel(where: Path) -> None:
    """The same, with MindFormers on two devices."""
    pair(where)
    (where / "llama_dp2.yaml").rename(where / "llama.yaml")


def scripts(where: Path, arguments: Path, config: Path) -> None:
    """Launch scripts as users write them, under the names that pages give them."""
    launch(where)
    for name in ("pretrain_gpt.py", "run_mindformer.py"):
        shutil.copy(LAUNCH / name, where)
    shutil.copy(arguments, where / "llama.args")
    settings = yaml.safe_load(config.read_text(encoding="utf-8"))
    (where / "llama.yaml").write_text(config.read_text(encoding="utf-8"), encoding="utf-8")
    (where / "llama_dp2.yaml").write_text(yaml.safe_dump(settings | TWO_DEVICES))
    words = [*arguments.read_text(encoding="utf-8").split(), "--data-path", "data/corpus"]
    train = f'torchrun --standalone --nproc-per-node 1 pretrain_gpt.py {" ".join(words)} "$@"\n'
    (where / "train_megatron.sh").write_text(f"#!/usr/bin/env bash\n{train}")
    (where / "pretrain_llama.sh").write_text(f"#!/usr/bin/env bash\nSIZE=$1 GPUS=$2\nshift 2\n{train}")
    (where / "train_mindformers.sh").write_text("#!/usr/bin/env bash\npython run_mindformer.py --config llama.yaml\n")


def own_script(where: Path) -> None:
    """The script of docs/own_forward_step.md, started as the pair's own is."""
    ((_, text),) = blocks("docs/own_forward_step.md", "py")
    (where / "own_pretrain.py").write_text(text, encoding="utf-8")
    started = (where / "train_megatron.sh").read_text(encoding="utf-8").replace("pretrain_gpt.py", "own_pretrain.py")
    (where / "train_own.sh").write_text(started, encoding="utf-8")


def corpus(where: Path) -> None:
    """The data set that trainings read."""
    subprocess.run([sys.executable, str(LAUNCH / "corpus.py"), str(where / "data" / "corpus")], check=True, capture_output=True)


@cache
def trained_once() -> Path:
    """Two runs of four steps, of Megatron-LM and of MindFormers on its weights and batches, in a directory that is gone at the end."""
    where = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, where)
    pair(where)
    corpus(where)
    kinds = ("BATCHES", "LOCAL_NORMS", "GRADIENTS", "WEIGHTS", "OPTIMIZER_STATE")
    environment = os.environ | {f"ALIGN_HOOKS_{name}": "all" for name in kinds} | {"ALIGN_HOOKS_DEVICE": "cpu", "ALIGN_HOOKS_SEED": "42"}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    fed = {f"ALIGN_HOOKS_{name}": "runs/megatron" for name in ("REPLAY_BATCHES", "LOAD_WEIGHTS")}
    for side, words, variables in (("megatron", ["--exit-interval", "4"], {}), ("mindformers", [], fed)):
        command = ["align-hooks", "run", "--", "bash", f"train_{side}.sh", *words]
        own = variables | {"ALIGN_HOOKS_RUN": f"runs/{side}"}
        subprocess.run(command, cwd=where, env=environment | own, check=True, capture_output=True)
    return where / "runs"


def trained(where: Path) -> None:
    """Two runs that were trained, under the names that pages give them."""
    shutil.copytree(trained_once(), where / "runs")


def checkpoint(where: Path) -> None:
    """A Hugging Face checkpoint of the pair's model."""
    shutil.copytree(trained_once() / "megatron" / "step_0" / "rank_0" / "weights", where / "llama_hf")


def tokenizer(where: Path) -> None:
    """A tokenizer of the pair's vocabulary, and two runs that two more commands name."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    Tokenizer(WordLevel({f"w{number}": number for number in range(256)}, unk_token="w0")).save(str(where / "tokenizer.json"))
    for name, run in (("a", "megatron"), ("b", "mindformers")):
        (where / "runs" / name).symlink_to(run)


def plan(where: Path) -> None:
    """The ladder of docs/ladder.md, as a file; the last rung's turn is short."""
    ((_, text),) = blocks("docs/ladder.md", "yaml")
    (where / "plan.yaml").write_text(text.replace("{changes}", "--data-path data/corpus --train-iters 2 {changes}"), encoding="utf-8")


def mindspeed(where: Path) -> None:
    """A launch script for MindSpeed, which nothing here can start."""
    shutil.copy(where / "train_megatron.sh", where / "train_mindspeed.sh")


# ---- what is on record


def records(where: Path) -> None:
    """Two runs that agree, of two frameworks, under the names that pages give them."""
    run = Synthetic()
    run.write(where / "runs" / "megatron")
    replace(run.drifted(), side="ms").write(where / "runs" / "mindformers")


def candidate(where: Path) -> None:
    """One more, which a stored reference is held against."""
    Synthetic().drifted().write(where / "runs" / "candidate")


def everything(where: Path) -> None:
    """A run that recorded all that there is."""
    routed("sketches", "routing").write(where / "runs" / "megatron")


# ---- what other tools left


def logs(where: Path) -> None:
    """Logs of both frameworks, MindFormers' with local norms, and a short record that has their names."""
    from evidence.test_local_norms import LOSSES, logged
    from evidence.test_logs import megatron

    short = replace(Synthetic(), side="ms").write(where / "runs" / "short")
    (where / "mindformers.log").write_text(logged(short))
    (where / "megatron.log").write_text(megatron(LOSSES))


def curves(where: Path) -> None:
    """TensorBoard's events, and a table as W&B exports it."""
    from evidence.curves.test_tensorboard import logged

    logged(where / "tensorboard", range(1, 5))
    (where / "wandb.csv").write_text("step,loss\n" + "".join(f"{step},{10.0 - step}\n" for step in range(1, 5)))


def dumps(where: Path) -> None:
    """Dumps of msprobe and of MindSpore, arrays that were saved by hand, and a configuration."""
    import numpy as np

    from checkpoints.models import DENSE, huggingface
    from evidence.dumps.operators import write

    shutil.copytree(ROOT / "tests/evidence/dumps/golden/torch_tensor", where / "dump_torch")
    write(where / "made")
    (where / "made").rename(where / "dump_ms")
    huggingface(where / "hf", DENSE)
    (where / "saved").mkdir()
    np.save(where / "saved" / "model.embed_tokens.npy", np.ones((2, 3, 4), np.float32))


def checkpoints(where: Path) -> None:
    """Checkpoints of both frameworks, and a record with weights."""
    from align_hooks.checkpoints.convert import convert_weights
    from checkpoints.models import Sizes, huggingface, record, tensors
    from checkpoints.of_megatron import torch_dist

    sizes = Sizes(vocabulary=12)
    content = tensors(sizes)
    record(where / "runs" / "megatron", sizes, content)
    torch_dist(where / "checkpoints" / "iter_0000010", sizes, content)
    convert_weights(huggingface(where / "made", sizes, content), where / "output" / "checkpoint", "mindspore")
    (where / "output" / "checkpoint" / "config.json").unlink()
