"""The guide's experiment without updates, of 1,000 steps at a learning rate of 0: ``python tests/longrun/still.py FOLDER [--steps N]``.

``align-hooks frozen`` trains and judges. Honest candidates: MindFormers, and Megatron-LM in another order of sums. Faulty ones: the labels
of one batch backwards, in both frameworks, which is in the record; and one id looked up in another's row, which is not, and of which few
batches tell. Of the first step that stands out the variables that are printed are given to both sides, and the two runs compared: alone
it is the same step on both sides where a run was fed another batch once, and differs where the model treats it otherwise. A run that is
there is not trained again.
"""

import argparse
import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from longrun.train import HERE, corpus_of, spoilt
from real import frameworks

STEPS = 1000
"""Those that the guide asks for."""


@dataclass(frozen=True)
class Still:
    """A run at rate 0: its name, whether it is MindFormers', the fault that is planted in it, and the rows of its micro-batches."""

    name: str
    of_mindformers: bool = False
    fault: str = ""
    rows: int = 2


REFERENCE = Still("reference")
CANDIDATES = (
    Still("megatron_one_row", rows=1),
    Still("mindformers", of_mindformers=True),
    Still("megatron_bad_batch", fault="bad_batch"),
    Still("mindformers_bad_batch", of_mindformers=True, fault="bad_batch"),
    Still("megatron_rare_token", fault="rare_token"),
)


def train(folder: Path, one: Still, steps: int, launcher: list[str], **variables: object) -> frameworks.Ended:
    """Train by a launcher, where that was not done before."""
    if (folder / "done").exists():
        return frameworks.Ended(0, "")
    if one.of_mindformers:
        done = frameworks.mindformers(folder, change={"lr_schedule.total_steps": steps}, launcher=launcher, **variables)
    else:
        change = {"--train-iters": str(steps), "--micro-batch-size": str(one.rows)}
        planted = {"script": HERE / "planted.py", "environment": {"PLANTED": one.fault}} if one.fault else {}
        done = frameworks.megatron(folder, change=change, launcher=launcher, **planted, **variables)
    (folder / "log").write_text(done.output)
    if done.code in (0, 1, 4):
        (folder / "done").touch()
    return done


def judged(where: Path, one: Still, steps: int) -> str:
    """One candidate, trained and judged: a line of the table."""
    folder, reference = where / one.name, where / "reference/run"
    frozen = ["-m", "align_hooks", "frozen", "--run", str(folder / "run"), "--from", str(reference), "--json", str(folder / "said.json")]
    if one.of_mindformers and one.fault:  # the command feeds the reference's batches alone
        fed = {"LEARNING_RATE": 0, "LOAD_WEIGHTS": f"{reference}@0", "REPLAY_BATCHES": spoilt(reference, folder / "batches")}
        train(folder, one, steps, ["-m", "align_hooks.ms_side"], RUN=folder / "run", **fed)
    else:
        train(folder, one, steps, [*frozen, "--", sys.executable])
    done = frameworks.python(folder, frozen, {}, {})
    (folder / "said").write_text(done.output)
    said = json.loads((folder / "said.json").read_text())
    cells = [f"{number['median']:.1e}, at most {number['largest']:.1e} at {number['at']}" for number in said["numbers"]]
    out = sorted({each["step"] for number in said["numbers"] for each in number["standing_out"]})
    verdict = said["verdict"] if said["first_id"] is None else f"{said['verdict']}: {said['first_id']}"
    cells = [one.name, str(done.code), verdict, *cells, ", ".join(map(str, out)), alone(folder, one, said["commands"])]
    return f"| {' | '.join(cells)} |"


def alone(folder: Path, one: Still, commands: dict[str, list[str]]) -> str:
    """What is said of the first step that stands out, once both sides have run it alone by what is printed; nothing where none does."""
    for step, lines in list(commands.items())[:1]:
        runs = []
        for line, side in zip(lines, (REFERENCE, one), strict=True):
            given = dict(word.split("=", 1) for word in shlex.split(line))
            variables = {name.removeprefix("ALIGN_HOOKS_"): value for name, value in given.items()}
            runs.append(variables["RUN"])
            launcher = ["-m", "align_hooks.ms_side" if side.of_mindformers else "align_hooks.torch_side"]
            train(folder / f"alone_{side.name}", side, 1, launcher, **variables)
        done = frameworks.compare(*runs)
        return f"step {step}: exit {done.code}"
    return ""


def main() -> None:
    """Train what is not there, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--steps", type=int, default=STEPS)
    asked = parser.parse_args()
    where = asked.folder.resolve()
    frameworks.places["corpus"] = corpus_of(where)
    frozen = ["-m", "align_hooks", "frozen", "--run", str(where / "reference/run"), "--", sys.executable]
    train(where / "reference", REFERENCE, asked.steps, frozen).succeeded()
    print("| candidate | exit code | verdict, first stage | loss apart | global norm apart | stand out | the step alone |")
    print("|" + " --- |" * 7)
    for one in CANDIDATES:
        print(judged(where, one, asked.steps), flush=True)


if __name__ == "__main__":
    main()
