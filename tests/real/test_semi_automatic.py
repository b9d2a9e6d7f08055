"""Semi-automatic MindFormers on two processes of a CPU: MindSpore cuts, and the joined ranks are one rank's run.

MindSpore trains so on NPUs alone; what lets a CPU follow is ``scripts/semi_automatic.py`` and what is compiled here. A CPU has no
kernel that sends to one rank, none of a maximum over ranks and none for a part of the ranks: no pipeline, no cut vocabulary, no grid.
"""

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from align_hooks import open_run
from real import frameworks
from real.test_noninterference import CUT, OWN_DATA, same

SCRIPT, SOURCE = (frameworks.SCRIPTS / name for name in ("semi_automatic.py", "cpu_communication.cc"))
HEADER = "ccsrc/include/utils/comm_manager.h"
PARALLEL = {"parallel_mode": 1, "full_batch": True, "gradients_mean": False}
DP2 = {"use_parallel": True, "parallel": PARALLEL, "parallel_config.data_parallel": 2}
MP2 = DP2 | {"parallel_config.data_parallel": 1, "parallel_config.model_parallel": 2}
ODD = {"--vocab-size": "257", "--make-vocab-size-divisible-by": "1"}
"""A vocabulary that two ranks cannot cut."""
SHARDED = {"parallel_optimizer_threshold": 0, "gradient_accumulation_shard": False}
OPTIMIZER = {"enable_parallel_optimizer": True, "parallel_optimizer_config": SHARDED}
RECORDED = {name: steps for name, steps in frameworks.EVERYTHING.items() if not name.startswith("ACTIVATIONS")}
"""Everything that is not refused of these jobs."""
CASES = {
    "DP2": DP2,
    "MP2": MP2 | {"model.model_config.vocab_size": 257},
    "DP2, parallel optimizer": DP2 | {"parallel": PARALLEL | OPTIMIZER},
}

pytestmark = pytest.mark.slow


def compiled(where: Path, include: Path) -> None:
    """Compile what makes groups for a CPU, by MindSpore's headers of its older strings."""
    folders = [f"-I{include / folder}" for folder in ("ccsrc", "core", "core/include")]
    library = include.parents[1] / "lib"
    line = ["g++", "-shared", "-fPIC", "-std=c++17", "-D_GLIBCXX_USE_CXX11_ABI=0", *folders, str(SOURCE)]
    subprocess.run([*line, "-o", str(where), f"-L{library}", "-lmindspore_common"], check=True)


@pytest.fixture(scope="module")
def environment(real_corpus: Path) -> dict[str, str]:
    found = importlib.util.find_spec("mindspore")
    assert found is not None and found.origin is not None
    include = Path(found.origin).parent / "include" / "mindspore"
    if shutil.which("g++") is None:
        pytest.skip("no g++ compiles what makes groups for a CPU")
    if not (include / HEADER).exists():
        pytest.skip(f"this MindSpore has no {HEADER}")
    return {"COMMUNICATION": str(frameworks.derived(compiled, include))}


def two_ranks() -> tuple[str, ...]:
    """Two workers of msrun whose graphs MindSpore cuts."""
    return (*frameworks.msrun(), str(SCRIPT))


def megatron(case: str) -> Path:
    """Return the run of one rank whose model a case has."""
    return frameworks.recorded(frameworks.megatron, change=ODD if case == "MP2" else {})


def recorded(case: str, environment: dict[str, str], reference: Path, **given: object) -> Path:
    """Return the record of two ranks on a reference's weights and batches."""
    fed = {"RUN": "run", **RECORDED, **frameworks.fed_by(reference)}
    own = {"launcher": two_ranks, "change": CASES[case], "environment": environment}
    return frameworks.kept(frameworks.mindformers, **{**own, **fed, **given}).run


@pytest.mark.parametrize("case", CASES)
def test_the_joined_ranks_are_a_run_of_one_rank(case: str, environment: dict[str, str]) -> None:
    reference = megatron(case)
    run = recorded(case, environment, reference)
    opened = open_run(run)
    assert opened.problems == [] and opened.self_check.contradictions == () and opened.self_check.steps == (0, 1, 2)
    frameworks.aligned(reference, run)


def test_a_newer_model_is_cut_alike(environment: dict[str, str]) -> None:
    reference = frameworks.recorded(frameworks.megatron, family="qwen3")
    frameworks.aligned(reference, recorded("DP2", environment, reference, family="qwen3"))


def test_injected_gradients_reach_the_parts_of_a_parallel_optimizer(environment: dict[str, str]) -> None:
    reference = megatron("")
    run = recorded("DP2, parallel optimizer", environment, reference, INJECT_GRADIENTS=reference)
    frameworks.aligned(reference, run)


@pytest.mark.parametrize("family", [frameworks.LLAMA, "qwen3"])
def test_recording_leaves_both_ranks_bitwise_as_they_were(family: str, environment: dict[str, str]) -> None:
    columns = ["input_ids"] if family == frameworks.LLAMA else CUT
    data = OWN_DATA | {"train_dataset.input_columns": columns, "train_dataset.construct_args_key": columns}
    given = {"family": family, "launcher": two_ranks, "change": DP2 | data}
    given |= {"script": frameworks.SCRIPTS / "witness_mindformers.py"}
    given |= {"environment": {**environment, "WITNESS": "witness_{rank}.npz"}}
    plain = frameworks.kept(frameworks.mindformers, **given).where
    with_all = frameworks.kept(frameworks.mindformers, **given, RUN="run", **RECORDED).where
    for rank in range(2):
        same(*(where / f"witness_{rank}.npz" for where in (plain, with_all)), losses=frameworks.STEPS)


PLANTED = {"columns": "MP2", "rows": "DP2, parallel optimizer"}
"""A fault of our reading of layouts to the case that it spoils: each rank reads the next one's part."""


@pytest.mark.parametrize("fault", PLANTED)
def test_a_part_that_is_off_by_one_rank_is_found(fault: str, environment: dict[str, str]) -> None:
    case = PLANTED[fault]
    run = recorded(case, {**environment, "PLANTED": fault}, megatron(case))
    assert frameworks.first(frameworks.diverged(megatron(case), run)).name in ("step-0 loss", "self-check")
