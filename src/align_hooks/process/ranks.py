"""The rank of this process, the number of ranks and the job, from the variables of torchrun, msrun or mpirun.

They go into every rank's manifest; a reader refuses ranks of different jobs.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from align_hooks.errors import SettingsError
from align_hooks.process.restarts import launchers

RANK = ("RANK", "RANK_ID", "OMPI_COMM_WORLD_RANK")
WORLD_SIZE = ("WORLD_SIZE", "RANK_SIZE", "MS_WORKER_NUM", "OMPI_COMM_WORLD_SIZE")
DIGITS = 9
"""The most digits of a rank."""
JOB = ("TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "MASTER_ADDR", "MASTER_PORT", "MS_SCHED_HOST", "MS_SCHED_PORT")
LOOPBACK = ("127.", "localhost", "::1")


@dataclass(frozen=True, slots=True)
class Launch:
    """A process of a job."""

    rank: int = 0
    """The global rank."""
    world_size: int = 1
    job: str = ""
    """The variables that identify the job."""
    host: str = ""
    launchers: Mapping[str, int] = field(default_factory=dict)
    """The launchers that may start the process again, each with the number of this start; see :mod:`.restarts`."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Launch:
        """Read the launcher's variables, by default rank 0 of 1; raises SettingsError where they clash."""
        rank, world_size = (_first(environment, names) for names in (RANK, WORLD_SIZE))
        if (rank or 0) >= (world_size or 1):
            raise SettingsError(f"the launcher's variables say rank {rank} of {world_size or 1}; set WORLD_SIZE, or unset RANK")
        if rank is None or world_size is None:
            return cls(host=socket.gethostname(), launchers=launchers(environment))
        job = " ".join(f"{name}={environment[name]}" for name in JOB if name in environment)
        return cls(rank, world_size, job, socket.gethostname(), launchers(environment))

    def facts(self) -> dict[str, object]:
        """Return the facts for a manifest."""
        return asdict(self)


def _first(environment: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    if "MS_ROLE" in environment:  # under msrun, RANK and WORLD_SIZE may be a pod's, which count pods
        names = (*names[1:], names[0])
    name = next((name for name in names if environment.get(name, "").isdecimal()), None)
    if name is not None and len(environment[name]) > DIGITS:
        raise SettingsError(f"{name} has {len(environment[name])} digits: no job has so many ranks; unset it, or let the launcher set it")
    return int(environment[name]) if name is not None else None
