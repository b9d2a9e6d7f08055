"""What one GPU settles in eight minutes: ``python tests/gpu/run.py [--device cpu] [--seconds N] [--only TEXT] [--json FILE]``.

Every check trains Megatron-LM for a few steps, several trainings at a time, and none waits for another's success. Costs are measured last,
with nothing beside them. ``--device cpu`` runs every line of it but the device: what it then shows are rehearsals. ``tests/gpu/table.py``
writes the results into ``docs/compatibility.md`` and ``docs/cost.md``.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parents[2] / "benchmarks")]

import on_megatron  # noqa: E402
import torch  # noqa: E402
from profiled import added  # noqa: E402
from way import PLAIN, row  # noqa: E402

from gpu.checks import CHECKS, Outcome  # noqa: E402
from gpu.trainings import Trainings, cores  # noqa: E402
from real import frameworks  # noqa: E402

RESULTS = Path(__file__).parent / "results"
COSTS = (PLAIN, "scalars", "norms", "norms and sketches", "gradients", "weights", "activations")
AFTER = {"a record agrees with itself": "nothing interferes"}
"""Checks that read what another recorded."""


def checked(name: str, trainings: Trainings) -> list[Outcome]:
    """Return all outcomes of a check, the last of which says what went wrong in the check itself."""
    begun, outcomes = time.monotonic(), []
    try:
        outcomes.extend(CHECKS[name](trainings))
    except Exception as error:  # another check goes on
        traceback.print_exc()
        outcomes.append(Outcome("the check itself", False, f"{type(error).__name__}: {error}"[:300]))
    for outcome in outcomes:
        print(f"{name}: {outcome.case}: { {True: 'ok', False: 'FAIL', None: 'untried'}[outcome.ok] }: {outcome.words}", flush=True)
    print(f"{name}: {time.monotonic() - begun:.0f} s", flush=True)
    return outcomes


def costs(device: str, where: Path, until: float) -> Iterator[dict[str, object]]:
    """Yield what each way of recording costs in both sizes, and what torch's profiler counts, until the time is over."""
    ways = [way for way in on_megatron.WAYS if way.name in COSTS]
    for size in ("large", "small"):
        measured = {}
        for way in ways:
            if time.monotonic() < until:
                measured[way.name] = on_megatron.measure(way, size, where, sys.executable, device)
                yield {"kind": "time", **row(size, way, [measured])}
    for way in ways[2:]:
        if time.monotonic() < until:
            yield {"kind": "profile", "model": "large", "way": way.name, **added(way, "large", where, device)}


def machine(device: str) -> dict[str, str]:
    """Return what the results were made on."""
    packages = {name: version(name) for name in ("torch", "megatron-core", "numpy")}
    card = {"device": torch.cuda.get_device_name(), "cuda": str(torch.version.cuda)} if device == "cuda" else {"device": "CPU"}
    return {"python": platform.python_version(), **packages, **card}


def main() -> int:
    """Run the checks and write their results; 1 where one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--seconds", type=int, default=480, help="begin nothing after these, and end what runs then")
    parser.add_argument("--only", default="", help="checks that have one of these in their name, separated by commas; or costs")
    parser.add_argument("--json", type=Path, help="write the results to this file, not to tests/gpu/results")
    parser.add_argument("--keep", type=Path, help="keep what the trainings leave in this folder")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        raise SystemExit("torch sees no GPU here; --device cpu rehearses all of it")
    until = time.monotonic() + options.seconds
    frameworks.TIMEOUT = min(frameworks.TIMEOUT, options.seconds)
    chosen = [name for name in (*CHECKS, "costs") if any(part in name for part in options.only.split(","))]
    names = [name for name in chosen if name in CHECKS]
    with tempfile.TemporaryDirectory() as folder:
        where = options.keep or Path(folder)
        where.mkdir(parents=True, exist_ok=True)
        corpus = frameworks.python(where, [str(frameworks.LAUNCH / "corpus.py"), str(where / "corpus")], {}, {})
        frameworks.places["corpus"] = where / "corpus"
        corpus.succeeded()
        trainings = Trainings(options.device, where, max(2, cores() - 2))
        with ThreadPoolExecutor(len(CHECKS)) as pool:
            made = {name: pool.submit(checked, name, trainings) for name in names if name not in AFTER}
            outcomes = {name: future.result() for name, future in made.items()}
        outcomes |= {name: checked(name, trainings) for name in names if name in AFTER}
        measured = list(costs(options.device, where, until)) if "costs" in chosen else []
    for each in measured:
        print(each, flush=True)
    result = {
        "machine": machine(options.device),
        "checks": {name: [asdict(each) for each in outcomes[name]] for name in names},
        "costs": measured,
    }
    file = options.json or RESULTS / f"{result['machine']['device'].lower().replace(' ', '_')}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return int(any(each.ok is False for name in names for each in outcomes[name]))


if __name__ == "__main__":
    sys.exit(main())
