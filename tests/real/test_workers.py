"""Worker processes that are interpreters of their own: a data loader's, a pool's. They import the script again, and are left alone.

Megatron's own loader cannot be pickled, hooks or none (``worker_init_fn`` is a local function of it), so it starts workers by fork only.
"""

import sys
from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks

pytestmark = pytest.mark.slow
BELOW = ("-m", "align_hooks", "run", "--", sys.executable)
FORMS = {"launcher": ("-m", "align_hooks.torch_side"), "run": BELOW, "import": ("-W", "default")}


@pytest.fixture(scope="module")
def by_fork(real_corpus: Path) -> Path:
    return trained("launcher", "fork")


def trained(form: str, start: str) -> Path:
    environment = {"START": start} | ({"IMPORT_FORM": "1"} if form == "import" else {})
    given = {"script": frameworks.SCRIPTS / "workers.py", "change": {"--dataloader-type": "external"}, "environment": environment}
    run = open_run(frameworks.kept(frameworks.megatron, **given, launcher=FORMS[form], RUN="run", BATCHES="all").run)
    assert (run.problems, run.steps) == ([], list(range(frameworks.STEPS)))
    return run.path


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("start", ["spawn", "forkserver"])
def test_megatron_trains_on_what_workers_of_any_kind_read(by_fork: Path, form: str, start: str) -> None:
    run, reference = open_run(trained(form, start)), open_run(by_fork)
    assert [row["loss"] for row in run.scalars()] == [row["loss"] for row in reference.scalars()]
    assert (run.batch(2).tokens == reference.batch(2).tokens).all()


@pytest.mark.parametrize("form", ["launcher", "run"])
def test_mindformers_trains_on_what_spawned_workers_read(real_corpus: Path, form: str) -> None:
    given = {"script": frameworks.SCRIPTS / "workers_mindformers.py", "environment": {"START": "spawn"}, "RUN": "run", "BATCHES": "all"}
    given["launcher"] = BELOW if form == "run" else ("-m", "align_hooks.ms_side")
    change = {"train_dataset_task.type": "OwnData", "train_dataset.input_columns": ["input_ids"]}
    run = open_run(frameworks.kept(frameworks.mindformers, change=change, **given).run)
    assert (run.problems, run.steps) == ([], list(range(frameworks.STEPS)))
