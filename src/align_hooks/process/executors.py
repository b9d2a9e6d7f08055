"""Workers for long readings, as a ``concurrent.futures.Executor``: processes, threads, Dask or MPI."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import Any

from align_hooks.errors import AlignHooksError, shown
from align_hooks.extras import installing

ENGINES = "processes, processes:N, threads:N, dask:N, dask:ADDRESS, mpi, none"
"""The texts that :func:`executor_of` accepts."""
PATIENCE = "20s"
"""The time in which a scheduler must answer."""


@contextmanager
def executor_of(text: str) -> Iterator[Executor | None]:
    """Start the workers that a text of :data:`ENGINES` names; None for ``none``, which is this process only.

    ``processes`` starts one for each usable core. ``threads`` suit object storage, where reading is waiting. ``dask:N`` starts N workers
    here, ``dask:ADDRESS`` uses a running scheduler, ``tcp://host:8786``. ``mpi`` uses the ranks of ``mpiexec -n N python -m
    mpi4py.futures``. Raises AlignHooksError for another text, and without the library or the ranks.
    """
    name, _, argument = text.partition(":")
    if name not in STARTED or (argument and name in ("mpi", "none")):
        raise AlignHooksError(f"--executor {shown(text)} is none of {ENGINES}")
    try:
        with ExitStack() as stack:
            yield STARTED[name](argument, stack)
    except BrokenExecutor as error:
        why = f"a worker ended before its work was done ({shown(str(error))})"
        raise AlignHooksError(
            f"--executor {shown(text)}: {why}; give fewer workers, each with memory for two of the largest tensors"
        ) from None
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("dask", "distributed", "mpi4py"):
            raise
        raise AlignHooksError(f"--executor {name} needs {error.name}, which is not installed; {installing(name)}") from None


def _number(text: str) -> int:
    if text and not (text.isascii() and text.isdigit() and int(text) > 0):
        raise AlignHooksError(f"--executor: {shown(text)} is no number of workers")
    return int(text) if text else len(os.sched_getaffinity(0))


class _Workers(Executor):
    """Workers that start with the first piece: most comparisons are too small to need any, and would wait for them."""

    def __init__(self, start: Callable[[], Executor]) -> None:
        self._start = start

    @cached_property
    def _started(self) -> Executor:
        return self._start()

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._started.submit(fn, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        if "_started" in vars(self):
            self._started.shutdown(wait, cancel_futures=cancel_futures)


def _processes(argument: str, stack: ExitStack) -> Executor:
    number = _number(argument)

    def start() -> Executor:
        from concurrent.futures import ProcessPoolExecutor
        from multiprocessing import get_context

        # not forked: a fork copies locks of the threads of loaded libraries
        return ProcessPoolExecutor(number, get_context("spawn"))

    return stack.enter_context(_Workers(start))


def _threads(argument: str, stack: ExitStack) -> Executor:
    from concurrent.futures import ThreadPoolExecutor

    return stack.enter_context(ThreadPoolExecutor(_number(argument)))


def _dask(argument: str, stack: ExitStack) -> Executor:
    from dask import distributed

    if argument and not argument.isdigit():
        try:
            client = stack.enter_context(distributed.Client(argument, timeout=PATIENCE))
        except OSError as error:
            raise AlignHooksError(f"--executor dask: no scheduler answers at {shown(argument)} ({str(error)[:100]}); start one") from None
    else:
        started = distributed.LocalCluster(_number(argument), threads_per_worker=1, dashboard_address=":0", host="127.0.0.1")
        client = stack.enter_context(distributed.Client(stack.enter_context(started)))
    workers: Executor = client.get_executor(pure=False)
    return workers


def _mpi(argument: str, stack: ExitStack) -> Executor:
    from mpi4py import MPI
    from mpi4py.futures import MPIPoolExecutor

    if MPI.COMM_WORLD.Get_size() < 2:
        raise AlignHooksError(
            "--executor mpi has no other rank to work with; start it as mpiexec -n 8 python -m mpi4py.futures -m align_hooks …"
        )
    return stack.enter_context(MPIPoolExecutor())


STARTED: dict[str, Callable[[str, ExitStack], Executor | None]] = {
    "processes": _processes,
    "threads": _threads,
    "dask": _dask,
    "mpi": _mpi,
    "none": lambda argument, stack: None,
}
