"""How the commands of every page are run: a row a page, in the words of ``prepared.py``, and the commands that cannot be run here.

A page's commands are run as they stand and in their order, in one bash, each held against the exit code that the page gives it
(``# exits with 1``), or against 0. A page that trains is slow. What is in ``NOT_RUN`` is read by bash all the same, and so are its
variables, options and files (``tests/test_docs.py``).
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Row:
    """A page: what lies in its directory first, and whether its commands train."""

    page: str
    prepared: tuple[str, ...] = ()
    trains: bool = False
    ends: dict[str, int] = field(default_factory=dict)
    """How a command begins, to what it ends with on what lies there, where a page's reader may get another answer."""
    environment: dict[str, str] = field(default_factory=dict)
    """What a page says in words that is set."""


PAIR = ("pair", "corpus")
"""MindFormers has no setting for the scale of output projections at first, so a check of its YAML against what Megatron-LM parsed ends
with 1. At step 3 each side of the pair is right by weights of its own, which leaves ``arbitrate`` undecided."""
ROWS = (
    Row("README.md", PAIR, trains=True),
    Row("docs/activations.md", PAIR, trains=True),
    Row("docs/arbitrate.md", ("trained",), trains=True, ends={"align-hooks arbitrate runs/megatron runs/mindformers --step 3": 4}),
    Row("docs/attaching.md", PAIR, trains=True),
    # there is a run of that name already
    Row("docs/before_training.md", (*PAIR, "trained"), True, {"align-hooks check megatron.json": 1, "ALIGN_HOOKS_RUN=runs/megatron": 1}),
    Row("docs/certify.md", (*PAIR, "trained"), trains=True),
    Row("docs/checklist.md", ("pair", "trained", "tokenizer"), trains=True, ends={"align-hooks check runs/megatron llama.yaml": 1}),
    Row("docs/ci.md", ("records", "candidate")),
    Row("docs/convert.md", ("checkpoints",)),
    Row("docs/dumps.md", ("dumps",), ends={"align-hooks compare": 3}),  # of two models that have nothing to do with each other
    Row("docs/families.md", ("experts", "corpus"), trains=True),
    Row("docs/guide.md", ("launch",), trains=True),
    Row("docs/json.md", ("records",)),
    Row("docs/ladder.md", (*PAIR, "plan"), trains=True),
    Row("docs/launchers.md"),
    Row("docs/logs.md", ("logs", "curves")),
    Row("docs/long_runs.md", PAIR, trains=True),
    Row("docs/mindspeed.md", ("pair", "mindspeed")),
    Row("docs/noise.md", (*PAIR, "trained"), trains=True),
    Row("docs/optimizer.md", PAIR, trains=True),
    Row("docs/own_forward_step.md", (*PAIR, "own_script"), trains=True),
    Row("docs/own_loop.md"),
    Row("docs/prove.md"),
    Row("docs/python.md"),
    Row("docs/quick_start.md", PAIR, trains=True),
    Row("docs/reading_a_verdict.md", ("records",)),
    Row("docs/restarts.md", PAIR, trains=True),
    Row("docs/record.md", ("everything",)),
    Row("docs/rehearsal.md", PAIR, trains=True),
    Row("docs/scale.md", ("records",)),
    Row("docs/sharding.md", (*PAIR, "trained"), trains=True),
    Row("docs/sketches.md", (*PAIR, "checkpoint"), trains=True),
    Row("docs/solve.md", PAIR, trains=True),
    Row("launch/README.md", ("parallel", "corpus"), trains=True, environment={"WORKER_NUM": "2"}),
    Row("patches/README.md"),
)

EVERYWHERE = ""
"""In the place of a page: on every page."""
NOT_RUN = {
    EVERYWHERE: {
        "make demo": "makes an environment of its own; `align-hooks demo` is the same script, and is run",
        "pip install": "changes the environment of the tests; make install-check installs what pages say, beside each framework",
        "pip wheel": "fetches all that it depends on; tests/test_package.py makes the wheel and installs it",
        "rsync": "needs a second machine",
    },
    "docs/ci.md": {"python - <<": "is a test; tests/docs/test_ci.py runs it"},
    "docs/families.md": {"make demo FAMILY=": "is `align-hooks demo --family`, which is run"},
    "docs/launchers.md": {
        "srun": "needs Slurm; tests/test_launch_examples.py and tests/real/test_launch.py start its scripts with stand-ins",
        "align-hooks run -- bash scripts/msrun_launcher.sh": "needs a checkout of MindFormers; launch/README.md says how it was tried",
    },
    "docs/mindspeed.md": {
        "ALIGN_HOOKS_RUN=runs/mindspeed": "needs MindSpeed and an NPU",
        "MASTER_ADDR=": "needs MindSpeed and an NPU; tests/test_launch_examples.py starts the script with stand-ins",
    },
    "docs/own_loop.md": {
        "ALIGN_HOOKS_RUN=": "needs Megatron-Bridge; tests/real/test_bridge.py trains it",
        "align-hooks compare": "of what Megatron-Bridge records; tests/real/test_bridge.py compares it",
    },
    "docs/prove.md": {"align-hooks prove": "needs eight devices; tests/real/test_prove.py proves jobs of one rank and of two"},
    "docs/python.md": {"python - <<": "follow each other in one interpreter; tests/docs/test_python.py runs them"},
    "docs/scale.md": {
        "align-hooks compare runs/megatron runs/mindformers --executor dask:tcp": "needs a scheduler; tests/process has one",
        "mpiexec": "needs 17 slots; tests/process starts three",
        "export AWS_": "needs an object store; make storage starts one",
        "align-hooks compare s3:": "needs an object store; make storage starts one",
    },
    "patches/README.md": {
        "patch -p1": "patches the installed framework; tests/real/test_patches.py patches a copy",
        "git apply": "needs a checkout; make patches fetches every one that is named",
        "ALIGN_PATCH_RUN": "needs a patched framework; tests/real/test_patches.py trains one",
    },
}
"""Page to the commands that are not run, by how they begin, each with the reason."""


def why_not(page: str, command: str) -> str:
    """Why a command is not run; nothing where it is."""
    listed = NOT_RUN[EVERYWHERE] | NOT_RUN.get(page, {})
    return next((reason for begins, reason in listed.items() if command.startswith(begins)), "")
