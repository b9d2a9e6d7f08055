"""Long runs on a CPU, honest and faulty, to measure what a judge of long runs says of them: ``python tests/longrun/train.py FOLDER``.

Each reference is trained with repeats whose every weight is moved by one rounding, with honest candidates that add in another order, and
with one candidate a fault. A run that is there is not trained again.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks import open_run
from real import frameworks
from synthetic import save_by_hand

HERE = Path(__file__).parent
STEPS, BAD = 600, 400
"""Steps of a run, and the one whose batch is spoilt (planted.py has it too)."""
HALF = {"--bf16": ""}
TWO = {"--distributed-backend": "gloo"}


@dataclass(frozen=True)
class Long:
    """A run: its name, of which reference and framework it is, what it changes, the fault that is planted in it, and its seed of rounding
    (None moves nothing)."""

    name: str
    reference: str
    framework: str = "megatron"
    change: Mapping[str, object] = field(default_factory=dict)
    ranks: int | None = None
    fault: str = ""
    perturb: int | None = None

    @property
    def is_reference(self) -> bool:
        """Whether others are held against it."""
        return self.name == "reference"


REFERENCES = {"bf16_42": HALF, "fp32_42": {}, "bf16_43": HALF, "bf16_44": HALF}
"""Arguments of each; the number is its seed, of weights and data."""
ORDERS: dict[str, tuple[dict[str, str], int | None]] = {
    "one_row": ({"--micro-batch-size": "1"}, None),
    "four_rows": ({"--micro-batch-size": "4"}, None),
    "tensor_parallel": ({**TWO, "--tensor-model-parallel-size": "2"}, 2),
    "sequence_parallel": ({**TWO, "--tensor-model-parallel-size": "2", "--sequence-parallel": ""}, 2),
    "pipeline_parallel": ({**TWO, "--pipeline-model-parallel-size": "2"}, 2),
    "data_parallel": (TWO, 2),
    "data_parallel_one_row": ({**TWO, "--micro-batch-size": "1"}, 2),
}
"""The same training in another order of sums: arguments and ranks."""
FAULTS = {
    "beta2": Long("beta2", "", change={"--adam-beta2": "0.951"}),
    "embedding_undecayed": Long("embedding_undecayed", "", fault="embedding_undecayed"),
    "bad_batch": Long("bad_batch", "", fault="bad_batch"),
    "rate": Long("rate", "", change={"--lr": "1.02e-3", "--min-lr": "1.02e-3"}),
    "eps": Long("eps", "", change={"--adam-eps": "1e-6"}),
}
"""Faults that single steps hide."""
OF_MINDFORMERS = {
    "mindformers": Long("mindformers", "", "mindformers"),
    "mindformers_beta2": Long("mindformers_beta2", "", "mindformers", {"optimizer.betas": [0.9, 0.951]}),
    "mindformers_embedding_undecayed": Long("mindformers_embedding_undecayed", "", "mindformers", fault="embedding_undecayed"),
    "mindformers_bad_batch": Long("mindformers_bad_batch", "", "mindformers", fault="bad_batch"),
    "mindformers_rate": Long("mindformers_rate", "", "mindformers", {"lr_schedule.learning_rate": 1.02e-3}),
}


def runs(repeats: int) -> Iterator[Long]:
    """All runs, references first."""
    for reference in REFERENCES:
        yield Long("reference", reference)
    for one in OF_MINDFORMERS.values():
        yield replace(one, reference="fp32_42")
    for reference in ("bf16_42", "fp32_42"):
        for fault in FAULTS.values():
            yield replace(fault, reference=reference, change={"--micro-batch-size": "1", **fault.change})
    for reference in REFERENCES:
        yield from (Long(f"repeat_{number}", reference, perturb=number) for number in range(1, repeats + 1))
        for name, (change, ranks) in ORDERS.items() if REFERENCES[reference] else list(ORDERS.items())[:1]:
            yield Long(name, reference, change=change, ranks=ranks)


def train(where: Path, one: Long, steps: int) -> None:
    """Train a run from its reference's weights, where it was not trained before."""
    folder = where / one.reference / one.name
    if (folder / "done").exists():
        return
    reference = where / one.reference / "reference/run"
    variables: dict[str, object] = {"RUN": folder / "run", "RUN_EXISTS": "replace", "SEED": one.reference[-2:]}
    variables |= {"LOCAL_NORMS": "all", "BATCHES": "all"}
    variables |= {"WEIGHTS": "0"} if one.is_reference else {"LOAD_WEIGHTS": reference, "PERTURB": one.perturb}
    if one.framework == "megatron":
        planted = {"script": HERE / "planted.py", "environment": {"PLANTED": one.fault}} if one.fault else {}
        change = {"--train-iters": str(steps), **REFERENCES[one.reference], **one.change}
        done = frameworks.megatron(folder, change=change, ranks=one.ranks, **variables, **planted)
    else:
        variables["REPLAY_BATCHES"] = spoilt(reference, folder / "batches") if one.fault == "bad_batch" else reference
        script = {"script": HERE / "planted_mindformers.py"} if one.fault == "embedding_undecayed" else {}
        done = frameworks.mindformers(folder, change={"lr_schedule.total_steps": steps, **one.change}, **script, **variables)
    (folder / "log").write_text(done.output)
    if done.code == 0:
        (folder / "done").touch()
    else:
        print(f"{one.reference}/{one.name} ended with {done.code}, see {folder / 'log'}", file=sys.stderr)


def spoilt(reference: Path, where: Path) -> Path:
    """The reference's batches as the guide's snippet would have left them, the labels of one backwards."""
    run = open_run(reference)
    for step in run.batch_steps():
        arrays = {name: array for name, array in run.batch(step).arrays().items() if name != "attention_mask"}
        if step == BAD:
            arrays["labels"] = arrays["labels"][:, ::-1]
        save_by_hand(where, step, arrays)
    return where


def corpus_of(folder: Path) -> Path:
    """The text of all runs of a folder, made where it is not there."""
    corpus = folder / "corpus"
    if not corpus.with_suffix(".bin").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, str(frameworks.LAUNCH / "corpus.py"), str(corpus)], check=True, stdout=subprocess.DEVNULL)
    return corpus


def main() -> None:
    """Train everything that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--workers", type=int, default=2)
    every = list(REFERENCES)
    parser.add_argument("--only", nargs="+", choices=every, default=every, help="these references, and what is theirs")
    asked = parser.parse_args()
    frameworks.places["corpus"] = corpus_of(asked.folder.resolve())
    everything = [one for one in runs(asked.repeats) if one.reference in asked.only]
    for references in (True, False):
        with ThreadPoolExecutor(asked.workers) as pool:
            chosen = [one for one in everything if one.is_reference is references]
            list(pool.map(lambda one: train(asked.folder.resolve(), one, asked.steps), chosen))


if __name__ == "__main__":
    main()
