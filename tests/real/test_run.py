"""``align-hooks run -- COMMAND …`` with the real launchers: both of two data-parallel ranks record, and nothing else is touched."""

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.comparison.diagnosis.commands import training_command
from real import frameworks
from real.kept import Kept

RUN = ("-m", "align_hooks", "run", "--")
DATA_PARALLEL = {"use_parallel": True, "parallel": {"parallel_mode": 0, "gradients_mean": True}, "parallel_config.data_parallel": 2}


def torchrun() -> tuple[str, ...]:
    return (*RUN, "torchrun", "--nproc_per_node=2", f"--master-port={frameworks.free_port()}")


@pytest.fixture(scope="module")
def two_ranks(real_corpus: Path) -> Kept:
    """The reference's run on two data-parallel ranks: one micro-batch each, where it has two."""
    return frameworks.kept(frameworks.megatron, launcher=torchrun, RUN="run", **frameworks.EVERYTHING)


def whole(path: Path, ranks: int = 2) -> None:
    run = open_run(path)
    assert run.problems == []
    assert run.steps == list(range(frameworks.STEPS))
    assert [(one.place["dp"], one.size("dp")) for one in run.manifests.values()] == [(rank, ranks) for rank in range(ranks)]
    assert len(run.batch(0).rows) == ranks


def test_both_ranks_of_torchrun_record(two_ranks: Kept) -> None:
    whole(two_ranks.run)
    for rank in (0, 1):
        assert f"align_hooks: torch side, rank {rank}, pid " in two_ranks.ours
    assert two_ranks.ours.count(" side") == 2  # torchrun itself is left alone
    hooks = json.loads((two_ranks.run / "manifest/rank_1.json").read_text())["hooks"]
    # not installed, gone from Megatron since 0.17, or new in 0.20
    not_there = {"mindspeed", "bridge_config", "bridge_setup", "bridge_checkpoint", "rehearsal_fused_kernels", "rehearsal_fully_sharded_2"}
    not_there |= {"checkpoint"}  # none is saved
    not_there |= {"auxiliary", "prediction", "routing", "z_loss"}  # of models with experts, or that predict further
    assert {name for name, hook in hooks.items() if not hook["calls"]} == not_there


def test_copies_are_the_same_and_counted_once(two_ranks: Kept) -> None:
    path = two_ranks.run
    mine, copy = (json.loads((path / f"local_norms/rank_{rank}.jsonl").read_text().splitlines()[0])["squared"] for rank in (0, 1))
    assert mine == copy
    assert open_run(path).local_norms(0)["lm_head.weight"] == pytest.approx(np.sqrt(mine["lm_head.weight"]), rel=1e-12)
    assert (path / "step_0/rank_1/weights/model.safetensors").stat().st_size < 100
    assert not (path / "step_0/rank_1/weights/config.json").exists()


def test_two_ranks_are_aligned_with_one(two_ranks: Kept, reference: Path) -> None:
    frameworks.aligned(reference, two_ranks.run)


@pytest.mark.slow
def test_a_replay_gives_each_rank_of_megatron_its_rows(reference: Path) -> None:
    given = {"launcher": torchrun, "change": {"--data-path": "/nowhere"}, "SEED": 43, **frameworks.fed_by(reference)}
    run = frameworks.recorded(frameworks.megatron, **given)
    whole(run)
    frameworks.aligned(reference, run)


@pytest.mark.slow
def test_both_ranks_of_msrun_record_and_each_gets_its_rows(reference: Path) -> None:
    given = {"launcher": frameworks.msrun, "change": DATA_PARALLEL, **frameworks.EVERYTHING, **frameworks.fed_by(reference)}
    trained = frameworks.kept(frameworks.mindformers, RUN="run", **given)
    assert trained.ours.count(" side, rank ") == 2  # neither msrun nor its scheduler, which runs the script too
    whole(trained.run)
    frameworks.aligned(reference, trained.run)


@pytest.mark.slow
def test_gradients_that_are_summed_over_ranks_are_recorded_as_the_optimizer_gets_them(reference: Path) -> None:
    change = DATA_PARALLEL | {"parallel": {"parallel_mode": 0}, "lr_schedule.total_steps": 1}
    fed = {"RUN": "run", "REPLAY_BATCHES": f"{reference}@0", "LOAD_WEIGHTS": reference, "LOCAL_NORMS": "0"}
    run = frameworks.kept(frameworks.mindformers, launcher=frameworks.msrun, change=change, **fed).run
    (row,), first = open_run(run).scalars(), open_run(reference).scalars()[0]
    assert row["loss"] == pytest.approx(first["loss"], rel=1e-6)
    assert row["objective_loss"] == pytest.approx(2 * first["objective_loss"], rel=1e-6)
    assert row["grad_norm"] == pytest.approx(2 * first["grad_norm"], rel=1e-5)


@pytest.mark.slow
def test_a_shell_script_trains_and_its_other_processes_are_left_alone(tmp_path: Path, real_corpus: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site/sitecustomize.py").write_text("import sys; sys.hidden = True")
    (tmp_path / "train.py").write_text(f"import sys; assert sys.hidden; exec(open({str(frameworks.LAUNCH / 'pretrain_gpt.py')!r}).read())")
    lines = ["set -e", "python -m pip --version", f"python {frameworks.LAUNCH / 'corpus.py'} again"]
    (tmp_path / "script.sh").write_text("\n".join([*lines, f'cd {tmp_path} && python train.py "$@"']))
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    given = {"launcher": (*RUN, "bash"), "script": tmp_path / "script.sh", "environment": {"PYTHONPATH": path}}
    done = frameworks.megatron(tmp_path / "elsewhere", RUN="run", GRADIENTS="0", **given).succeeded()
    assert done.output.startswith("pip ") or "\npip " in done.output
    assert "corpus.py: left alone, as it did not train" in done.ours
    assert "train.py: finished" in done.ours
    assert open_run(tmp_path / "elsewhere/run").problems == []


@pytest.mark.slow
def test_the_command_on_record_trains_again_as_it_is_printed(tmp_path: Path, real_corpus: Path) -> None:
    """By the module of a side: attached by that and by ``align-hooks run``, it has one session."""
    frameworks.megatron(tmp_path, flags=["--exit-interval", "1"], RUN=tmp_path / "run").succeeded()
    training = training_command(open_run(tmp_path / "run"))
    assert training is not None and "align_hooks.torch_side" in training
    variables = frameworks.REHEARSAL | {"RUN": tmp_path / "again"}
    done = frameworks.program(tmp_path, ["bash", "-c", f"align-hooks run -- {training}"], variables, {})
    assert done.succeeded().ours.count("training data") <= 1
    assert [open_run(tmp_path / name).steps for name in ("run", "again")] == [[0], [0]]


@pytest.mark.slow
def test_two_rehearsals_that_start_at_once_need_no_address_and_share_no_port(tmp_path: Path, real_corpus: Path) -> None:
    """Without torchrun Megatron itself ends with "MASTER_ADDR expected"."""
    launchers = {"attached": ("-m", "align_hooks.torch_side"), "below": (*RUN, sys.executable)}

    def rehearse(name: str) -> frameworks.Ended:
        given = {"launcher": launchers[name], "change": {"--train-iters": "1"}, "RUN": "run", "BATCHES": "0"}
        return frameworks.megatron(tmp_path / name, **given)

    with ThreadPoolExecutor(len(launchers)) as pool:
        for name, done in zip(launchers, pool.map(rehearse, launchers), strict=True):
            ours = done.succeeded().ours
            assert "MASTER_ADDR: not set -> 127.0.0.1 (ALIGN_HOOKS_DEVICE)" in ours
            overrides = {one.what: one for one in open_run(tmp_path / name / "run").facts.overrides}
            assert (overrides["MASTER_PORT"].after, overrides["MASTER_PORT"].why) == ("0", "ALIGN_HOOKS_DEVICE")
