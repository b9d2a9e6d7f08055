"""``align-hooks run --arguments-only`` with the real frameworks and launchers: what it writes is what ``check`` reads of the script."""

import json
import sys
from pathlib import Path

import pytest

from align_hooks.checklist.result import CLEAN
from align_hooks.checklist.sides import check
from chosen import slow_but
from real import frameworks

ONLY = ("-m", "align_hooks", "run", "--arguments-only", "--")
LAUNCHERS = {
    "torchrun": ("torchrun", "--nproc_per_node=2"),
    "python": (sys.executable,),
    "attached": (sys.executable, "-m", "align_hooks.torch_side"),
}
PARALLEL = {"use_parallel": True, "parallel": {"parallel_mode": 0, "gradients_mean": True}, "parallel_config.data_parallel": 2}


def left_running(where: Path) -> list[str]:
    """Command lines of processes that name a folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return [line for line in lines if f"{where}/" in line]


@pytest.mark.parametrize("name", slow_but(LAUNCHERS))
def test_megatron_ends_with_its_arguments_parsed(tmp_path: Path, real_corpus: Path, name: str) -> None:
    launcher = (*LAUNCHERS[name], *([f"--master-port={frameworks.free_port()}"] if name == "torchrun" else []))
    done = frameworks.megatron(tmp_path, launcher=(*ONLY, *launcher), RUN=tmp_path / "run").succeeded()
    ranks = 2 if name == "torchrun" else 1
    assert f"rank 0 of {ranks}, for align-hooks check" in done.ours
    assert {"run", "cache"} & {path.name for path in tmp_path.iterdir()} == set()  # neither recorded nor came to its data
    assert left_running(tmp_path) == []
    facts = json.loads((tmp_path / "arguments.json").read_text())
    assert (facts["side"], facts["rank"], facts["world_size"], facts["trains"]) == ("torch", 0, ranks, True)
    lines = (frameworks.LAUNCH / "llama.args").read_text().splitlines()
    lines = [line for line in lines if not line.startswith(("--train-iters", "--data-path"))]
    script = f"torchrun --nproc_per_node {ranks} pretrain_gpt.py --train-iters {frameworks.STEPS} --data-path {real_corpus} \\\n"
    (tmp_path / "train.sh").write_text(script + " \\\n".join(lines) + "\n")
    found = check(str(tmp_path / "train.sh"), str(tmp_path / "arguments.json"), {})
    assert (found.exit_code, found.differing) == (CLEAN, [])


@pytest.mark.slow
def test_megatrons_own_refusal_of_its_arguments_is_the_exit_code(tmp_path: Path, real_corpus: Path) -> None:
    done = frameworks.megatron(tmp_path, launcher=(*ONLY, sys.executable), flags=("--no-such-flag",))
    assert done.code == 2
    assert "no process parsed the arguments" in done.ours
    assert not (tmp_path / "arguments.json").exists()


@pytest.mark.parametrize("ranks", slow_but([1, 2], 1))
def test_mindformers_ends_with_its_configuration_parsed(tmp_path: Path, ranks: int) -> None:
    msrun = ("msrun", "--worker_num=2", "--local_worker_num=2", f"--log_dir={tmp_path / 'logs'}", "--join=True")
    launcher = (*msrun, f"--master_port={frameworks.free_port()}") if ranks == 2 else (sys.executable,)
    change = PARALLEL if ranks == 2 else {}
    done = frameworks.mindformers(tmp_path, launcher=(*ONLY, *launcher), change=change, RUN=tmp_path / "run").succeeded()
    assert f"rank 0 of {ranks}, for align-hooks check" in done.ours
    assert not (tmp_path / "run").exists()
    assert left_running(tmp_path) == []
    found = check(str(tmp_path / "llama.yaml"), str(tmp_path / "arguments.json"), {})
    assert (found.exit_code, found.differing) == (CLEAN, [])
