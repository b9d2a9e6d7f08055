"""What a training imports of ours: what keeps runs may leave the rest out of their names."""

from pathlib import Path

import pytest

from chosen import slow, slow_but
from real import frameworks
from real.frameworks import Train
from real.kept import DEFAULTS, READERS

WITNESS = frameworks.SCRIPTS / "witness_of_imports"
BELOW = ("-m", "align_hooks", "run", "--", "python")
FORMS = {"a side": {}, "align-hooks run": {"launcher": BELOW}}


@pytest.mark.parametrize("form", slow_but(FORMS, "a side"))
@pytest.mark.parametrize("train", [frameworks.megatron, slow(frameworks.mindformers)])
def test_no_training_imports_what_only_reads(train: Train, form: str, reference: Path) -> None:
    given = {"environment": {"PYTHONPATH": str(WITNESS), "IMPORTED": "imported"}, **FORMS[form]}
    taught = {**frameworks.fed_by(reference), "TEACHER": f"{reference}@0", "INJECT_GRADIENTS": f"{reference}@0"}
    trained = frameworks.kept(train, RUN="run", **taught, **frameworks.EVERYTHING, **given)
    found = {name for line in (trained.where / "imported").read_text().splitlines() for name in line.split()}
    assert "align_hooks.session.recording" in found
    readers = {name for name in found if name.split(".")[1] in READERS}
    allowed = {f"align_hooks.{name.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}" for name in DEFAULTS}
    assert readers <= (allowed if train is frameworks.mindformers else set())
