"""How rounding grows with depth, which default limits follow: ``python tests/zoo/depth.py``.

Honest variants of one step of Megatron, on models of 2, 8 and 32 layers: what is worst of each kind, in eps of the compute type. Runs
that are there are not trained again; the table is written beside this file.
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks import open_run
from align_hooks.comparison.distances import MEASURED
from align_hooks.comparison.metrics.limits import DEFAULTS
from real import frameworks
from zoo.run import PRECISIONS, RESULTS, SCRIPTS, corpus_in

LAYERS = (2, 8, 32)
HONEST = ("sums_in_another_order", "norm_by_hand", "fused_attention")
MOVED = "weights moved by one eps"
KINDS = ("token_losses", "local_norms", "gradients", "updates")
RECORDED = {"BATCHES": "0", "LOCAL_NORMS": "0", "GRADIENTS": "0", "WEIGHTS": "0,1"}
SMALL = {"--train-iters": "1", "--global-batch-size": "2", "--micro-batch-size": "2"}


def variants(where: Path, precision: str, layers: int) -> dict[str, Path]:
    """The reference's directory, under an empty name, and those of its variants."""
    flags = PRECISIONS[precision] | SMALL | {"--num-layers": str(layers)}
    reference = where / "reference"
    if not (reference / "run.json").exists():
        frameworks.megatron(where / "work", change=flags, RUN=reference, **RECORDED).succeeded()
    runs = {"": reference}
    for name in (*HONEST, MOVED):
        runs[name] = where / name.replace(" ", "_")
        if (runs[name] / "run.json").exists():
            continue
        fed = {"RUN": runs[name], "REPLAY_BATCHES": reference, "LOAD_WEIGHTS": reference, **RECORDED}
        if name == MOVED:
            frameworks.megatron(where / "work", change=flags, PERTURB=1, **fed).succeeded()
        else:
            frameworks.megatron(where / "work", change=flags, script=SCRIPTS["megatron"], environment={"PLANTED": name}, **fed).succeeded()
    return runs


def measured(reference: Path, run: Path, eps: float) -> dict[str, float]:
    """Of each kind the worst relative error at the first step, in eps."""
    both = open_run(reference), open_run(run)
    return {kind: max(distance.error for distance in MEASURED[kind](*both, 0, eps)) / eps for kind in KINDS}


def main() -> None:
    """Train what is not there, and write the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--where", type=Path, default=Path("build/zoo"), help="where runs are kept")
    where = parser.parse_args().where.resolve() / "depth"
    corpus_in(where)
    rows = []
    for precision in PRECISIONS:
        for layers in LAYERS:
            runs = variants(where / f"{precision}_{layers}", precision, layers)
            errors = {name: measured(runs[""], runs[name], DEFAULTS[precision].eps) for name in (*HONEST, MOVED)}
            worst = {kind: max(errors[name][kind] for name in HONEST) for kind in KINDS}
            rows.append({"precision": precision, "layers": layers, "honest": worst, "moved": errors[MOVED]})
            print(rows[-1], flush=True)
    (RESULTS / "depth.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
