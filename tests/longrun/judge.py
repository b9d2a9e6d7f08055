"""What is said of the runs of :mod:`train`, and of honest pairs that are made: ``python tests/longrun/judge.py FOLDER [--made N]``.

The first table holds every candidate against its reference, with repeats whose weights were moved by one rounding: the verdict of
``compare``, where the band was left, what ``watch`` says of the same rows one by one, and the guide's acceptance standard. The second
counts false alarms on pairs that are made with the autocorrelation that was measured (``tests/drifting.py``), the third on real pairs in
which every repeat takes each part. The fourth says how alike neighbouring differences are.
"""

import argparse
import random
import sys
from itertools import combinations, permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np

import drifting
from align_hooks import Run, open_run
from align_hooks.comparison.acceptance import acceptance, outcome
from align_hooks.comparison.control_band.banded import banded, drifts
from align_hooks.comparison.control_band.noise_model import NUMBERS, differences, fit, innovations, leaves
from align_hooks.comparison.control_band.watching import JobWatch
from align_hooks.comparison.noise import Noise
from align_hooks.comparison.pair import Pair
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stages.band import band
from align_hooks.messages import rendered

PAIRS = 300
"""Of so many ways to choose a reference, a candidate and repeats."""


def trained(folder: Path) -> tuple[Run, list[Run]]:
    """The reference of a folder, and its repeats."""
    repeats = [open_run(path / "run") for path in sorted(folder.glob("repeat_*")) if (path / "done").exists()]
    return open_run(folder / "reference/run"), repeats


def judged(folder: Path) -> None:
    """The table of one reference."""
    reference, repeats = trained(folder)
    for path in sorted(folder.iterdir()):
        if (path / "done").exists() and path.name != "reference" and not path.name.startswith("repeat"):
            print(f"| {folder.name} | {path.name} | {' | '.join(said(reference, open_run(path / 'run'), repeats))} |", flush=True)


def said(reference: Run, run: Run, repeats: list[Run]) -> list[str]:
    """The cells of one candidate."""
    comparison = compare(reference, run, noise=repeats)
    first = f": {comparison.first.name}" if comparison.first is not None else ""
    suspect = f" ({rendered(comparison.blame.suspects[0].what)})" if comparison.blame and comparison.blame.suspects else ""
    stage = next((stage for stage in comparison.stages if stage.stage is band), None)
    beyond = [str(finding.step) for finding in stage.findings if finding.limit_ratio > 1] if stage else []
    watch, pair = JobWatch(reference, repeats), Pair(reference, run)
    for row in run.rows:
        watch.see(row)
    alarms = ", ".join(f"{alarm.number} from {alarm.start}, seen at {alarm.step}" for alarm in watch.alarms)
    accepted = outcome(acceptance(pair.rows, Noise(pair, repeats).rows())).text
    return [comparison.verdict.text + first + suspect, ", ".join(beyond), alarms, accepted]


def made(count: int) -> None:
    """False alarms on honest pairs that are made, by the number of repeats."""
    for repeats in (1, 2, 4):
        left = off = 0
        for seed in range(count):
            hard = drifting.hardness(seed)
            own, *others = (drifting.differences(100_000 * repeats + 10 * seed + number, hard=hard) for number in range(repeats + 2))
            candidate, noise = others[0] - own, np.stack(others[1:]) - own
            model = fit(noise)
            left += leaves(candidate, model) is not None
            off += any(abs(part.mean) > part.limit for part in drifts(candidate, noise, model.settled))
        print(f"| {repeats} | {count} | {left} | {off} |", flush=True)


def alike(folder: Path) -> None:
    """How alike neighbouring differences of repeats are, and their innovations."""
    reference, repeats = trained(folder)
    for name in NUMBERS:
        _, of_repeats = differences(name, reference, repeats)
        model = fit(of_repeats)
        apart = of_repeats / np.maximum(model.scale, np.finfo(float).tiny)
        new = [innovations(each, model.gain, model.scale) / model.scale for each in of_repeats]
        cells = [f"{np.mean([np.corrcoef(one[:-lag], one[lag:])[0, 1] for one in of]):.2f}" for of in (apart, new) for lag in (1, 10, 30)]
        print(f"| {folder.name} | {name} | {model.gain} | {' | '.join(cells)} |", flush=True)


def exchanged(folder: Path) -> None:
    """False alarms where every repeat, and the reference, takes each part: reference, candidate, and repeats of it."""
    reference, repeats = trained(folder)
    runs = [reference, *repeats]
    for count in range(1, min(4, len(runs) - 1)):
        every = [
            (ours, theirs, noise)
            for ours, theirs in permutations(runs, 2)
            for noise in combinations([run for run in runs if run not in (ours, theirs)], count)
        ]
        chosen = random.Random(0).sample(every, min(PAIRS, len(every)))
        parts = (banded(pair, Noise(pair, noise)) for pair, noise in ((Pair(*two), noise) for *two, noise in chosen))
        left = sum(any(part.alarm for part in each) for each in parts)
        print(f"| {folder.name} | {count} | {len(chosen)} | {left} |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--made", type=int, default=200)
    asked = parser.parse_args()
    folders = sorted(path for path in asked.folder.iterdir() if (path / "reference/done").exists())
    print("| reference | candidate | compare | beyond the band at | watch | guide's standard |\n| --- | --- | --- | --- | --- | --- |")
    for folder in folders:
        judged(folder)
    print("\n| repeats | honest pairs made | left the band | a part's mean is off |\n| --- | --- | --- | --- |")
    made(asked.made)
    print("\n| reference | repeats | honest pairs of repeats | left the band |\n| --- | --- | --- | --- |")
    for folder in folders:
        exchanged(folder)
    print("\n| reference | number | gain | 1 step apart | 10 | 30 | innovations, 1 | 10 | 30 |\n|" + " --- |" * 9)
    for folder in folders:
        alike(folder)


if __name__ == "__main__":
    main()
