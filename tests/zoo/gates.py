"""What other gates let through: each says of two runs whether they pass as the same, None where it cannot be asked."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from align_hooks import Run, open_run
from align_hooks.comparison.pipeline import compare
from align_hooks.record.format.rows import ScalarRow

HEAD = "lm_head"
COSINE = 0.99
FINAL = 0.05
"""Relative error of the last loss that Megatron-LM's functional tests allow (``ApproximateTest(rtol=0.05)``)."""


def guide(reference: Run, candidate: Run) -> bool | None:
    """The accuracy guide's acceptance standard: means of losses and norms, and the first loss."""
    passed = [criterion.passed for criterion in compare(reference, candidate).acceptance]
    return None if None in passed or not passed else all(passed)


def bridge(reference: Run, candidate: Run) -> bool | None:
    """Megatron-Bridge's of a conversion: of the last position the same next token, and a cosine of the logits of at least 0.99."""
    step = reference.steps[0]
    values = [run.activations(step) for run in (reference, candidate) if step in run.steps_of("activations")]
    if len(values) < 2 or not all(HEAD in of_run and of_run.has_tensor(HEAD) for of_run in values):
        return None
    ours, theirs = (of_run.tensor(HEAD).astype(np.float64)[:, -1] for of_run in values)
    cosines = (ours * theirs).sum(-1) / (np.linalg.norm(ours, axis=-1) * np.linalg.norm(theirs, axis=-1))
    return bool((ours.argmax(-1) == theirs.argmax(-1)).all() and (cosines >= COSINE).all())


def final_loss(reference: Run, candidate: Run) -> bool | None:
    """The last loss that both have, within 5 %."""
    rows: list[dict[int, ScalarRow]] = [{row.step: row for row in run.rows if row.loss is not None} for run in (reference, candidate)]
    if not (both := sorted(rows[0].keys() & rows[1].keys())):
        return None
    ours, theirs = (of_run[both[-1]].loss for of_run in rows)
    return bool(abs(theirs - ours) <= FINAL * abs(ours)) if ours is not None and theirs is not None else None


GATES: dict[str, tuple[str, Callable[[Run, Run], bool | None]]] = {
    "guide": ("the guide's acceptance standard", guide),
    "bridge": ("Megatron-Bridge's: same next token, cosine of the logits at least 0.99", bridge),
    "final_loss": ("the last loss within 5 %", final_loss),
}


OF_MSPROBE = {"msprobe": "msprobe's comparison of the first step: no error", "msprobe_strict": "the same: no error and no warning"}
NAMES = {name: description for name, (description, _) in GATES.items()} | OF_MSPROBE


def let_through(reference: Path, candidate: Path, word: str | None) -> dict[str, bool | None]:
    """What each gate says of a pair; ``word`` is msprobe's for the worst value, None where it was not asked."""
    runs = open_run(reference), open_run(candidate)
    of_msprobe = (
        {"msprobe": None, "msprobe_strict": None} if word is None else {"msprobe": word != "error", "msprobe_strict": word == "pass"}
    )
    return {name: gate(*runs) for name, (_, gate) in GATES.items()} | of_msprobe
