"""What each launcher says about a process."""

import pytest
from msgspec.structs import asdict

from align_hooks.process.ranks import Launch

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "8", "MASTER_ADDR": "a", "MASTER_PORT": "1", "TORCHELASTIC_RUN_ID": "x"}
MSRUN = {"RANK_ID": "3", "MS_WORKER_NUM": "8", "MS_SCHED_HOST": "a", "MS_SCHED_PORT": "1"}
MPIRUN = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "8"}


WORKER = MSRUN | {"RANK_SIZE": "8", "MS_ROLE": "MS_WORKER"}
LAUNCHED = {
    "torchrun": TORCHRUN,
    "msrun": MSRUN,
    "msrun 2": MSRUN | {"RANK_SIZE": "8"},
    "mpirun": MPIRUN,
    # an operator of Kubernetes sets them in every pod, as PyTorchJob does, and msrun hands them on to its workers
    "msrun in a pod": WORKER | {"RANK": "1", "WORLD_SIZE": "2"},
    "msrun in the first pod": WORKER | {"RANK": "0", "WORLD_SIZE": "16"},
    "torchrun in an Ascend pod": TORCHRUN | {"RANK_ID": "0", "RANK_SIZE": "1"},
}


@pytest.mark.parametrize("launcher", LAUNCHED)
def test_every_launcher_gives_rank_and_world_size_and_no_pod_does(launcher: str) -> None:
    launch = Launch.from_environment(LAUNCHED[launcher])
    assert (launch.rank, launch.world_size) == (3, 8)


@pytest.mark.parametrize("environment", [{}, {"RANK": ""}, {"RANK": "x", "WORLD_SIZE": "y"}, {"WORLD_SIZE": "8"}])
def test_a_process_started_by_hand_is_rank_0_of_1(environment: dict[str, str]) -> None:
    launch = Launch.from_environment(environment)
    assert (launch.rank, launch.world_size, launch.job) == (0, 1, "")
    assert launch.host


def test_ranks_of_one_job_share_its_name() -> None:
    names = {Launch.from_environment(TORCHRUN | {"RANK": rank}).job for rank in "01234567"}
    assert len(names) == 1


@pytest.mark.parametrize("changed", [{"MASTER_PORT": "2"}, {"MASTER_ADDR": "b"}, {"TORCHELASTIC_RUN_ID": "y"}, {"SLURM_JOB_ID": "5"}])
def test_another_job_has_another_name(changed: dict[str, str]) -> None:
    assert Launch.from_environment(TORCHRUN | changed).job != Launch.from_environment(TORCHRUN).job


def test_facts_are_enough_to_make_it_again() -> None:
    launch = Launch.from_environment(TORCHRUN)
    assert Launch(**asdict(launch)) == launch  # type: ignore[arg-type]
