"""What msprobe's comparison says of a pair: both sides trained once more under it, the first step dumped as its documentation puts it."""

import csv
import json
import subprocess
import sys
from pathlib import Path

from real import frameworks
from zoo import run as zoo
from zoo.case import MEGATRON, Case, Reference

CONFIG = {"task": "statistics", "level": "L0", "rank": [], "step": [0], "async_dump": False}
STATISTICS = {"scope": [], "list": [], "data_mode": ["all"], "summary_mode": "statistics"}
WORDS = ("pass", "warning", "error")
"""Its words in the column ``Result``, the worst last."""


def worst(case: Case, reference: Reference, recorded: Path, where: Path) -> str | None:
    """msprobe's word for the worst value of the first step; None for runs of several ranks, of a checkpoint, of a tree's own script, or of
    MindFormers."""
    of_tree = bool(case.commit) and not case.edits
    if case.side != MEGATRON or case.ranks is not None or case.earlier is not None or of_tree:
        return None
    fed = zoo.fed_to(case, recorded, where / case.name)
    own = {"LOAD_WEIGHTS": recorded} if reference.start else {}
    sides = {"golden": (reference, {"REPLAY_BATCHES": recorded if fed["REPLAY_BATCHES"] else None, **own}), "target": (case, fed)}
    paths = {name: dump(side, where / case.name / "msprobe" / name, where, given) for name, (side, given) in sides.items()}
    results = where / case.name / "msprobe" / "results"
    if not [*results.glob("*.csv")]:
        told = [word for name, path in paths.items() for word in (f"--{name}_path", str(path))]
        program = Path(sys.executable).with_name("msprobe")
        done = subprocess.run([program, "compare", *told, "--output_path", str(results)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    with next(results.glob("*.csv")).open(encoding="utf-8-sig", newline="") as file:
        return max((row["Result"] for row in csv.DictReader(file) if row["Result"] in WORDS), key=WORDS.index, default=None)


def dump(side: Case | Reference, folder: Path, where: Path, fed: dict[str, object]) -> Path:
    """The dump of a side's first step, made once."""
    made = folder / "dump" / "step0"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        config = folder / "config.json"
        config.write_text(json.dumps(CONFIG | {"dump_path": str(folder / "dump"), "statistics": STATISTICS}))
        tree = where / "trees" / side.tree if side.tree else None
        given = {"script": frameworks.SCRIPTS / "dump_pretrain.py", "environment": {"MSPROBE_CONFIG": str(config)}}
        zoo.start(side, folder, tree, {**side.flags, "--exit-interval": "1"}, **given, **fed).succeeded()
    return made
