"""What is mutated: small records by the real Writer, configurations and logs, each a directory that is the same whenever it is built.

A seed's directory holds ``run`` where a record is mutated, ``reference`` and ``candidate`` files where a configuration is, and ``run.log``
where a log is. What it is compared with stands in ``partner``, which no mutation touches.
"""

import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone, tzinfo
from functools import partial
from pathlib import Path
from unittest.mock import patch

import numpy as np
import yaml

import synthetic
from align_hooks import open_run, settings
from align_hooks.checkpoints.convert import convert_weights
from align_hooks.evidence.convert import convert
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.distill import distill
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.shard import Shard
from align_hooks.record.write import record_start
from align_hooks.record.write.step_files import StepBatch
from checklist.exercises import BASES, MEGATRON, NEW, OLD
from checkpoints.models import Sizes, huggingface, tensors
from evidence.dumps import operators
from evidence.test_logs import megatron, mindformers
from evidence.test_monitor import monitored
from fuzz.formats import event_file
from sharded import Grid, Model
from sharded import write as write_sharded
from synthetic import EVERYTHING, HONEST_SKETCHED, ROUTERS, ROWS, SEQUENCE, Array, Synthetic, begun, by_hand, job, routed, row, scalars_only

LAUNCH = Path(__file__).parents[2] / "launch"
GOLDEN = Path(__file__).parents[1] / "evidence" / "dumps" / "golden"
RUN, PARTNER, LOG, NAMES, SOURCE = "run", "partner", "run.log", "names", "source"
SIDES = ("reference", "candidate")


class Always(datetime):
    """A clock that stands still: a seed is the same whenever it is built."""

    @classmethod
    def now(cls, tz: tzinfo | None = None) -> datetime:
        return datetime(2026, 11, 22, tzinfo=timezone.utc)


@contextmanager
def the_same() -> Iterator[None]:
    """Run ids count, no time passes, and a path stays as it was given, so that no record holds where it was made."""
    numbers = itertools.count()
    with (
        patch.object(record_start, "datetime", Always),
        patch.object(record_start.secrets, "token_hex", lambda size: f"{next(numbers):0{2 * size}x}"),
        patch.object(settings, "path_of", Path),
        patch.object(Path, "resolve", lambda path, strict=False: path),
    ):
        yield


def everything() -> Synthetic:
    """A run of one rank that recorded all there is, with arguments for ``check``."""
    return Synthetic(settings=EVERYTHING | {"sketches": "all"}, facts=configured(OLD))


def configured(style: str) -> dict[str, object]:
    """What run.json holds of a configuration."""
    arguments = {name.replace("-", "_"): "True" if value is None else str(value) for name, value in MEGATRON.items()}
    layers = {"model.embed_tokens.weight": {"class": "Embedding", "weight": "float32", "compute": "float32"}}
    environment = {"CUDA_DEVICE_MAX_CONNECTIONS": {"value": "1", "effective": True}}
    return {"arguments": arguments, "layers": layers, "classes": ["FlashAttention"], "environment": environment, "notes": [style]}


def pair(path: Path, run: Synthetic, partner: Synthetic) -> None:
    """A record to be mutated and what it is compared with."""
    run.write(path / RUN)
    partner.write(path / PARTNER)


def one_rank(path: Path) -> None:
    pair(path, everything(), everything().drifted())


def with_experts(path: Path) -> None:
    """A model whose tokens are given to experts, with the other terms of its loss; in the candidate one token is given to others."""
    for name in (RUN, PARTNER):
        run = routed("routing")
        for scalars in run.rows:
            scalars["terms"] = {"auxiliary": 0.002, "multi_token_prediction": 1.5}  # type: ignore[assignment]
        if name == PARTNER:
            run.routing[1][ROUTERS[0]][0, 0] = (0, 1) if run.routing[1][ROUTERS[0]][0, 0].tolist() != [0, 1] else (2, 3)
        run.write(path / name)


def with_points(path: Path) -> None:
    """What the points of a model put out, whole tensors too; in the candidate one point is off, and one has no gradient."""
    random = np.random.default_rng(5)
    names = ("model.embed_tokens", "model.layers.0.mlp.down_proj", "model.layers.0", "model.norm")
    values = {
        name + suffix: random.standard_normal((ROWS, SEQUENCE, 4)).astype(np.float32) for name in names for suffix in ("", "#gradient")
    }
    for name in (RUN, PARTNER):
        run = Synthetic(settings={"batches": "all", "activations": "0-1", "activations_tensors": "*norm"})
        run.activations = {step: dict(values) for step in range(2)}
        if name == PARTNER:
            run.activations[1]["model.norm"] = values["model.norm"] * np.float32(1.5)
            del run.activations[1]["model.layers.0#gradient"]
        run.write(path / name)


def other_side(path: Path) -> None:
    """A record of MindFormers beside one of Megatron-LM."""
    facts = {"arguments": {name.replace("m.", "model.model_config."): str(value) for name, value in BASES[NEW].items()}}
    pair(path, dataclasses.replace(everything().drifted(), side="ms", facts=facts), everything())


def two_ranks(path: Path) -> None:
    """Two data-parallel ranks: batches and random states of both, tensors that the first alone counts."""
    run = everything()
    for name, rank in itertools.product((RUN, PARTNER), range(2)):
        made = begun(path / name, job(rank, 2), batches="all", sketches="all", local_norms="all")
        place = {"dp": rank, "dp_size": 2, "tp": 0, "tp_size": 1, "pp": 0, "pp_size": 1}
        shards = [Shard(name, shape, name, "float32", counted=rank == 0) for name, shape in run.shapes.items()]
        made.describe(place=place, shards=shards, facts={"training": {"compute_type": "float32"}, "model": run.model}, steps=range(2))
        kept: Callable[[dict[str, Array]], dict[str, list[float]]] = synthetic.sketched if rank == 0 else lambda tensors: {}
        made.sketches(WEIGHTS, 0, kept(run.weights[0]))
        for step in range(2):
            made.batch(step, StepBatch(run.batches[step], [2, 2]))
            made.local_norms(step, "reduced", run.norms[step], [])
            made.sketches(GRADIENTS, step, kept(run.gradients[step]))
            made.sketches(WEIGHTS, step + 1, kept(run.weights[step + 1]))
            made.scalars(row(step, random=[{"torch": "0" * 16}]))
        made.finish(HowEnded("finished"), hooks={"seams": {"fired": 3}})


def distilled(path: Path) -> None:
    """A run as one file, beside a run."""
    one_rank(path)
    content = distill(open_run(path / RUN)).content
    shutil.rmtree(path / RUN)
    (path / RUN).write_bytes(content)


def sharded(path: Path) -> None:
    """Two tensor-parallel ranks with a parameter table each."""
    for name in (RUN, PARTNER):
        write_sharded(path / name, Grid(tp=2), Model(layers=1).tensors(1), model=Model(layers=1))


def made_by_hand(path: Path) -> None:
    for name in (RUN, PARTNER):
        by_hand(path / name, ranks=2)


def of_a_log(path: Path) -> None:
    """What ``convert`` makes of a log."""
    log = path / LOG
    log.write_text(megatron())
    for name in (RUN, PARTNER):
        convert(log, path / name)
    log.unlink()


def mindformers_log(path: Path) -> None:
    """A log with local norms, and the record that names them, which is mutated too."""
    names = dataclasses.replace(Synthetic(), side="ms")
    names.write(path / RUN)
    text = []
    order = [name for group in names.optimizer["groups"] for name in group["parameters"]]
    lines = [line for line in mindformers((9.0, 8.9, 8.8)).splitlines() if "step:[" in line]
    for step, line in enumerate(lines):
        sizes = tuple(int(np.prod(names.shapes[name])) for name in order)
        sums = np.array2string(np.array([names.norms[step][name] for name in order], np.float32))
        text += [f"12:00:0{step} - INFO -  norm_size: {sizes}", "local_norm:", sums, line]
    (path / LOG).write_text("\n".join(text))


SIZES = Sizes(layers=2, heads=4, groups=2, head_dim=4, hidden=8, ffn=6, vocabulary=12)
OF_TORCH = """
import sys
from pathlib import Path
from checkpoints.models import tensors
from checkpoints.of_megatron import mp_rank, torch_dist
from fuzz.seeds import SIZES
{"mp_rank": mp_rank, "torch_dist": torch_dist}[sys.argv[1]](Path(sys.argv[2]), SIZES, tensors(SIZES))
"""
"""A checkpoint that torch writes, in a process of its own, so that torch takes no memory of the one that fuzzes."""


def mindspore_weights(path: Path) -> None:
    (path / SOURCE).mkdir()
    convert_weights(huggingface(path / "hf", SIZES, tensors(SIZES)), path / SOURCE / "model.ckpt", "mindspore-ckpt")
    shutil.copyfile(path / "hf" / "config.json", path / SOURCE / "config.json")
    shutil.rmtree(path / "hf")


def mindformers_weights(path: Path) -> None:
    convert_weights(huggingface(path / "hf", SIZES, tensors(SIZES)), path / SOURCE, "mindspore")
    shutil.rmtree(path / "hf")


def of_torch(kind: str, path: Path) -> None:
    paths = os.pathsep.join(str(Path(__file__).parents[2] / name) for name in ("tests", "src"))
    subprocess.run([sys.executable, "-c", OF_TORCH, kind, str(path / SOURCE)], check=True, env={**os.environ, "PYTHONPATH": paths})


def list_of_arrays(path: Path) -> None:
    (path / SOURCE / "step0").mkdir(parents=True)
    random = np.random.default_rng(1)
    for number, name in enumerate(("model.embed_tokens", "model.layers.0.mlp.down_proj", "model.norm_backward")):
        np.save(path / SOURCE / "step0" / f"{number}_{name}.npy", random.standard_normal((2, 3, 4)).astype(np.float32))


def tensorboard(path: Path) -> None:
    (path / SOURCE).mkdir()
    curves = {"lm loss": (10.9, 10.5, 10.1), "grad-norm": (2.5, 2.0, 1.5), "learning-rate": (1e-3, 1e-3, 1e-3), "loss vs samples": (10.9,)}
    points = {tag: dict(enumerate(values, 1)) for tag, values in curves.items()}
    (path / SOURCE / "events.out.tfevents.1.host").write_bytes(event_file(points))


def charts(path: Path) -> None:
    (path / SOURCE).mkdir()
    (path / SOURCE / "loss.csv").write_text("Step,a - lm loss,a - lm loss__MIN\n1,10.9,10.9\n2,10.5,10.4\n3,10.1,10.1\n")
    (path / SOURCE / "more.jsonl").write_text('{"_step": 1, "a - grad-norm": 3.5}\n\n{"_step": 2, "a - grad-norm": 3.25}\n')


def monitor(path: Path) -> None:
    run = Synthetic()
    run.write(path / PARTNER)
    names = {shard.native: shard.name for shard in open_run(path / PARTNER).shards(0)}
    for step in range(2):
        norms = {native: run.norms[step][name] ** 0.5 for native, name in names.items()}
        monitored(path / SOURCE / "rank_0", 2, norms, step)


SETTINGS = 'LR=1e-4\nLAYERS=(--num-layers 2)\nadd() { MORE+=(--seed "$1"); }\n'
SCRIPT = """#!/bin/bash
set -euo pipefail
source "$(dirname "$0")/settings.sh"
MODE=${MODE:-full}
if [ "$MODE" = full ] && [[ -n $LR ]]; then LR=1e-3; else LR=9; fi
case $MODE in f*) WIDTH=64;; *) WIDTH=$((32 * 2));; esac
for SEED in 1234; do add $SEED; done
cat > hosts <<EOF
one $WIDTH
EOF
torchrun --nproc_per_node 1 pretrain_gpt.py "${MORE[@]}" --hidden-size $WIDTH \\
"""


def script_and_yaml(path: Path) -> None:
    words = [f"  --{name}" if value is None else f"  --{name} {value}" for name, value in MEGATRON.items() if name != "hidden-size"]
    (path / "reference.sh").write_text(SCRIPT + " \\\n".join(words) + "\n")
    (path / "settings.sh").write_text(SETTINGS)
    (path / "candidate.yaml").write_text(written(BASES[OLD]))


def arguments_and_yaml(path: Path) -> None:
    shutil.copyfile(LAUNCH / "llama.args", path / "reference.args")
    shutil.copyfile(LAUNCH / "llama.yaml", path / "candidate.yaml")


def experts_and_yaml(path: Path) -> None:
    experts = "--num-experts 4 --moe-router-topk 2 --moe-layer-freq ([0]*1+[1]*1) --multi-latent-attention --rope-scaling-factor 40"
    (path / "reference.args").write_text("\n".join(f"--{name} {value or ''}" for name, value in MEGATRON.items()) + f"\n{experts}\n")
    (path / "candidate.yml").write_text(written(BASES["latent"]))


def parsed_and_yaml(path: Path) -> None:
    """What ``run --arguments-only`` wrote beside what is to be run."""
    of_side = {"parsed": 1, "side": "torch", "versions": {"megatron-core": "0.19.0"}}
    of_process = {"command": ["pretrain_gpt.py"], "rank": 0, "world_size": 1}
    (path / "reference.json").write_text(json.dumps(configured(OLD) | of_side | of_process))
    (path / "candidate.yaml").write_text(written(BASES[OLD]))


def record_and_yaml(path: Path) -> None:
    """A record beside what is to be run: ``check`` reads both."""
    everything().write(path / RUN)
    (path / "candidate.yaml").write_text(written(BASES[OLD]))


def written(flat: Mapping[str, object]) -> str:
    """A YAML file of settings by dotted name."""
    tree: dict[str, object] = {}
    for name, value in flat.items():
        *folders, last = name.replace("m.", "model.model_config.", 1 if name.startswith("m.") else 0).split(".")
        place = tree
        for folder in folders:
            place = place.setdefault(folder, {})
        place[last] = value
    return yaml.safe_dump(tree)


@dataclass(frozen=True, slots=True)
class Seed:
    """``build`` fills an empty directory."""

    name: str
    build: Callable[[Path], object]

    def write(self, path: Path) -> Path:
        """Build the seed in ``path``."""
        path.mkdir(parents=True)
        with chdir(path), the_same():
            self.build(Path())
        return path


def seeds(*builders: Callable[[Path], None], **named: Callable[[Path], object]) -> list[Seed]:
    """A seed of each builder, under its name."""
    return [Seed(name, builder) for name, builder in ({builder.__name__: builder for builder in builders} | named).items()]


DIGESTED = seeds(
    *(one_rank, other_side, two_ranks, sharded, of_a_log, with_experts, with_points),
    sketched=lambda path: pair(path, HONEST_SKETCHED, HONEST_SKETCHED.drifted()),
    rows_alone=lambda path: pair(path, scalars_only(), scalars_only((9.0, 8.9, None))),
)
"""Records of which every file has a digest."""
RECORDS = [*DIGESTED, *seeds(made_by_hand)]
DISTILLED = seeds(distilled)
"""Records that are one file."""
CHECKED = seeds(one_rank, other_side)
"""Records that hold a configuration."""
CONFIGURATIONS = seeds(script_and_yaml, arguments_and_yaml, experts_and_yaml, parsed_and_yaml, record_and_yaml)
LOGS = seeds(megatron_log=lambda path: (path / LOG).write_text(megatron()), mindformers_log=mindformers_log)
WEIGHTS_OF_OTHERS = seeds(
    huggingface_weights=lambda path: huggingface(path / SOURCE, SIZES, tensors(SIZES)),
    mindspore_weights=mindspore_weights,
    mindformers_weights=mindformers_weights,
    mp_rank=partial(of_torch, "mp_rank"),
    torch_dist=partial(of_torch, "torch_dist"),
)
DUMPS = seeds(
    msprobe_torch=lambda path: shutil.copytree(GOLDEN / "torch_tensor", path / SOURCE),
    msprobe_mindspore=lambda path: shutil.copytree(GOLDEN / "mindspore_tensor", path / SOURCE),
    mindspore_dump=lambda path: operators.write(path / SOURCE),
    list_of_arrays=list_of_arrays,
)
CURVES = seeds(tensorboard, charts)
MONITORS = seeds(monitor)
SEEDS = {seed.name: seed for seed in (*RECORDS, *DISTILLED, *CONFIGURATIONS, *LOGS, *WEIGHTS_OF_OTHERS, *DUMPS, *CURVES, *MONITORS)}


def linked(seed: Path, path: Path) -> Path:
    """A copy of a built seed, but its partner, whose files are hard links: who changes one writes it anew."""
    return Path(shutil.copytree(seed, path, copy_function=os.link, ignore=lambda folder, names: {PARTNER} & {*names}))
