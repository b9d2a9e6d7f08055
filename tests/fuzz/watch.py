"""What an input may not do: take long or much memory, read or write outside of a record, start or fetch anything, speak out of turn."""

import contextlib
import io
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from align_hooks.errors import AlignHooksError
from fuzz.odd import MARKUP
from fuzz.targets import Place

CPU_SECONDS = 20
"""Of the process itself, so that a busy machine is no fault."""
MEMORY = 1 << 30
ADDRESSES = 4 << 30
"""Bytes that may be asked for at once beyond what the process has, so that a bomb ends as an error and not as a dead machine."""
LINE = 2_000
"""Characters of an error; a path alone may have 4,096, none of ours does."""
SECRET = "canary-6f1d"
"""Stands in every file outside of the record, and must stand in nothing that is printed or written."""
FORBIDDEN = (
    *("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "socket.connect", "socket.bind", "pickle.find_class"),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.chmod", "os.truncate", "shutil.rmtree"),
)
"""What a command may do below its own output at most."""
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


class TooSlow(BaseException):
    """The time limit; no handler of errors takes it for one."""


class Forbidden(BaseException):
    """Something that reading never does."""


@dataclass(slots=True)
class Outcome:
    """How an input ended: ``code`` is an exit code, ``fault`` what it must not have done, ``message`` what it printed as an error."""

    code: int | None = None
    message: str = ""
    fault: str = ""
    trace: str = ""
    seconds: float = 0.0
    memory: int = 0


class Watch:
    """Keeps an eye on one process; :meth:`judge` is called for one input after the other."""

    def __init__(self, outside: Path) -> None:
        self.outside = outside
        self._writable: str | None = None
        (outside / "step_0" / "rank_0").mkdir(parents=True)
        for name in ("canary.txt", "canary.json", "canary.jsonl", "step_0/rank_0/tokens.npy"):
            (outside / name).write_text(f'{{"step": 0, "{SECRET}": "{SECRET}"}}\n')
        self._paths = [outside, *sorted(outside.rglob("*"))]
        self._content = self._seen()
        sys.addaudithook(self._audit)
        signal.signal(signal.SIGPROF, _too_slow)
        addresses = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (addresses + ADDRESSES, resource.RLIM_INFINITY))

    def judge(self, call: Callable[[Place], None], place: Place) -> Outcome:
        """Feed an input to its target and say how that ended."""
        done, output = Outcome(), io.StringIO()
        self._before()
        began = time.process_time()
        self._writable = str(place.out)
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
                call(place)
            done.code = 0
        except SystemExit as ended:
            done.code = int(ended.code or 0)
        except AlignHooksError as error:
            done.code, done.message = error.exit_code, str(error)
        except (Exception, TooSlow, Forbidden) as error:
            done.fault, done.trace = fault_of(error), "".join(traceback.format_exception(error, limit=-30))[-6_000:]
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)
            self._writable = None
        done.seconds, done.memory = time.process_time() - began, _peak()
        done.fault = done.fault or next(self._faults(done, place, output.getvalue()), "")
        return done

    def _faults(self, done: Outcome, place: Place, printed: str) -> Iterator[str]:
        """What else must not have happened."""
        if done.memory > MEMORY:
            yield f"took {done.memory >> 20} MiB"
        if done.message and (len(done.message.splitlines()) > 1 or len(done.message) > LINE):
            yield f"an error of {len(done.message.splitlines())} lines and {len(done.message)} characters"
        written = [path.read_text("utf-8") for path in (place.json, place.html) if path.exists()]
        if odd := sorted({character for character in printed if not character.isprintable() and character != "\n"}):
            yield f"printed {odd[0]!r}"
        if any(SECRET in text for text in (printed, done.message, *written)):
            yield "shows what stands outside of the record"
        if place.html.exists() and MARKUP in written[-1]:
            yield "a page holds a record's text as markup"
        if self._seen() != self._content:
            yield "changed what stands outside of the record"
        if read := [path.name for path in self._paths if path.stat().st_atime_ns != 0]:
            yield f"read outside of the record: {read[0]}"

    def _before(self) -> None:
        """Forget what was read and how much memory was taken."""
        for path in self._paths:
            os.utime(path, ns=(0, path.stat().st_mtime_ns))
        Path("/proc/self/clear_refs").write_text("5")

    def _seen(self) -> list[tuple[int, int]]:
        return [(path.stat().st_mtime_ns, path.stat().st_size) for path in self._paths]

    def _audit(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._writable is None:
            return
        if event == "open":
            path, mode, flags = arguments
            if isinstance(path, int) or not (flags & WRITES if mode is None else {*mode} & {*"wax+"}):
                return
        elif event not in FORBIDDEN or isinstance(arguments[0], int):  # what is open was seen when it was opened
            return
        place = str(arguments[0])
        if event in ("os.remove", "os.rmdir") and isinstance(folder := arguments[1], int) and folder >= 0:  # below an open folder
            place = f"{os.readlink(f'/proc/self/fd/{folder}')}/{place}"  # noqa: PTH115
        if not place.startswith(self._writable) and place != os.devnull:
            raise Forbidden(f"{event} {arguments[0]}")


def fault_of(error: BaseException) -> str:
    """An error by its type and the place of ours that it came from, by which faults are told apart."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/align_hooks/" in frame.filename]
    where = f"{frames[-1].filename.rpartition('/align_hooks/')[2]}:{frames[-1].name}" if frames else "nowhere of ours"
    return f"{type(error).__name__} in {where}"


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlow(f"more than {CPU_SECONDS} seconds of a processor")


def _peak() -> int:
    return next(int(line.split()[1]) << 10 for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
