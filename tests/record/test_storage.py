"""A record in object storage is read in place, and is what it is in a directory."""

import importlib.util
import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from align_hooks import open_run
from align_hooks.cli import app
from align_hooks.comparison.health import health
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import AlignHooksError, RecordError, SettingsError
from align_hooks.messages import rendered
from align_hooks.process.executors import executor_of
from align_hooks.process.storage import ALLOWED
from align_hooks.record.inventory import bytes_by_kind, inventory
from align_hooks.record.verify import verify
from align_hooks.replay.weights import open_weights
from align_hooks.report.json import as_json
from align_hooks.settings import Settings
from chosen import slow
from invoked import invoke
from synthetic import Synthetic, by_hand, routed, settings

upath = pytest.importorskip("upath", reason="universal-pathlib is not installed")
KEY, SECRET = "key", "secret"


def put(folder: Path, address: str) -> str:
    """Copy a directory to a storage; its address there."""
    place = upath.UPath(address)
    for file in folder.rglob("*"):
        if file.is_file():
            place.fs.makedirs(str((place / str(file.relative_to(folder))).parent.path), exist_ok=True)
            place.fs.pipe_file((place / str(file.relative_to(folder))).path, file.read_bytes())
    return address


@pytest.fixture(autouse=True)
def allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED, "memory, s3,nowhere")


@pytest.fixture
def bucket() -> str:
    return f"memory://{uuid.uuid4().hex}"


@pytest.fixture
def there(honest: Path, bucket: str) -> str:
    """The address of a whole run."""
    return put(honest, f"{bucket}/run")


def same_answers(where: Path, bucket: str, engine: str = "none") -> None:
    """Compare two runs that differ in a gradient in directories and in a storage."""
    candidate = Synthetic()
    candidate.gradients[0]["model.norm.weight"] *= 1.5
    paths = [run.write(where / name) for run, name in ((Synthetic(), "reference"), (candidate, "candidate"))]
    here = as_json(compare(*map(open_run, paths)))
    stored = [open_run(put(path, f"{bucket}/{path.name}")) for path in paths]
    with executor_of(engine) as executor:
        there = as_json(compare(*stored, executor=executor))
    for answer in (here, there):
        del answer["runs"], answer["next"], answer["commands"], answer["messages"]  # they name places
    assert str(there) == str(here)


def test_two_runs_are_compared_as_in_directories(tmp_path: Path, bucket: str) -> None:
    same_answers(tmp_path, bucket)


def test_everything_of_a_run_is_read(tmp_path: Path, bucket: str) -> None:
    path = routed("routing").write(tmp_path / "run")
    here, there = open_run(path), open_run(put(path, f"{bucket}/run"))
    assert str(there.path) == f"{bucket}/run"
    assert (there.steps, there.problems, there.local_norms(0)) == (here.steps, [], here.local_norms(0))
    assert np.array_equal(there.batch(0).tokens, here.batch(0).tokens)
    assert all(np.array_equal(there.weights(0)[name], here.weights(0)[name]) for name in here.weights(0))
    assert [*there.routing(0).names] == [*here.routing(0).names]
    assert bytes_by_kind(there) == bytes_by_kind(here)
    checked, expected = verify(there), verify(here)
    assert (checked.files, checked.bytes, checked.wrong) == (expected.files, expected.bytes, [])
    assert health(there, inventory(there), [], None).exit_code == health(here, inventory(here), [], None).exit_code


def test_a_directory_made_by_hand_is_read(tmp_path: Path, bucket: str) -> None:
    path = by_hand(tmp_path / "hand", ranks=2)
    there = open_run(put(path, f"{bucket}/hand"))
    assert there.made_by_hand
    assert np.array_equal(there.batch(1).tokens, open_run(path).batch(1).tokens)


def test_what_was_changed_or_lost_there_is_refused(there: str) -> None:
    run = open_run(there)
    gradients = run.gradients(0)
    name, tokens = run.path / "step_0/rank_0/gradients.safetensors", run.path / "step_1/rank_0/tokens.npy"
    content = name.read_bytes()
    changed = content[:-1] + bytes([content[-1] ^ 1])
    name.fs.pipe_file(name.path, changed)
    with pytest.raises(RecordError, match=r"was (replaced while it was being read|changed since it was recorded)"):
        list(gradients.values())
    with pytest.raises(RecordError, match="was changed since it was recorded"):
        list(open_run(there).gradients(0).values())
    name.fs.pipe_file(name.path, changed[:-1])
    with pytest.raises(RecordError, match="its size is not what its header says"):
        open_run(there).gradients(0)
    tokens.fs.pipe_file(tokens.path, tokens.read_bytes()[:-4])
    with pytest.raises(RecordError, match=r"tokens\.npy"):
        open_run(there).batch(1)
    name.fs.rm(name.path)
    (problem,) = open_run(there).problems
    assert "step_0/rank_0/gradients.safetensors" in rendered(problem.message)


def test_a_rank_that_lacks_an_end_is_named(tmp_path: Path, bucket: str) -> None:
    path = Synthetic(ended=None).write(tmp_path / "run")
    there, here = open_run(put(path, f"{bucket}/run")), open_run(path)
    assert [problem.kind for problem in there.problems] == [problem.kind for problem in here.problems] != []


@pytest.mark.parametrize(("address", "why"), [("memory://nothing", "is not a directory"), ("nowhere://run", "cannot be read")])
def test_an_address_that_leads_nowhere_is_refused(address: str, why: str) -> None:
    with pytest.raises(RecordError, match=why):
        open_run(address)


COMMANDS = """
show AT; show RUN --html AT; show RUN --json AT; doctor AT; ladder AT; dump-config AT
compare AT RUN; compare RUN AT; compare RUN RUN --noise AT; compare RUN RUN --tokenizer AT; compare RUN RUN --plan AT
check AT RUN; check RUN AT; check RUN RUN --fix AT; accept AT RUN; accept RUN AT; accept RUN RUN --noise AT
watch AT RUN; watch RUN AT; watch RUN RUN --noise AT; arbitrate AT RUN; arbitrate RUN AT; distill AT ZIP
convert AT OUT; convert AT OUT --to huggingface; convert RUN OUT --to huggingface --config AT
frozen --run AT --from RUN; frozen --run RUN --from AT
"""


@pytest.mark.parametrize("command", re.split(r"[;\n]\s*", COMMANDS.strip()))
@pytest.mark.parametrize("protocols", ["", "s3"])
def test_no_command_opens_an_address_that_nobody_allowed(
    honest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, protocols: str
) -> None:
    monkeypatch.setenv(ALLOWED, protocols) if protocols else monkeypatch.delenv(ALLOWED)
    opened: list[object] = []
    monkeypatch.setattr(upath, "UPath", opened.append)
    monkeypatch.setattr(socket.socket, "connect", opened.append)
    places = {"AT": "http://127.0.0.1:9/run", "RUN": honest, "ZIP": tmp_path / "a.zip", "OUT": tmp_path / "out"}
    done = invoke(app, [str(places.get(word, word)) for word in command.split()])
    assert isinstance(done.exception, AlignHooksError | SystemExit), done.exception
    assert done.exit_code and not opened


@pytest.mark.parametrize("name", ["REPLAY_BATCHES", "LOAD_WEIGHTS", "INJECT_GRADIENTS", "REPLAY_ROUTING", "TEACHER"])
def test_no_variable_opens_an_address_that_nobody_allowed(monkeypatch: pytest.MonkeyPatch, bucket: str, name: str) -> None:
    monkeypatch.setenv(ALLOWED, "s3")
    with pytest.raises(SettingsError, match=r"is an address, which nothing opens unasked; set ALIGN_HOOKS_STORAGE=memory, or name"):
        settings(**{name: f"{bucket}/run@0"})


def test_a_permission_asks_for_nothing_and_names_protocols() -> None:
    assert not Settings.from_environment({ALLOWED: "s3, gs"}).any_set()
    with pytest.raises(SettingsError, match="is no protocol of an address"):
        Settings.from_environment({ALLOWED: "s3://bucket"})


READERS = ["show", "compare OTHER", "check OTHER", "accept OTHER"]


@pytest.mark.parametrize("commands", [READERS, slow(["doctor"])], ids=["readers", "doctor"])
def test_an_address_in_a_record_is_text(commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, there: str) -> None:
    fed = {"run": there, "run_id": "other", "steps": [0]}
    facts = {"converted": {"log": there, "names": there}, "injected": fed, "routed": fed, "forced": fed, "model": {"_name_or_path": there}}
    asked = {**Synthetic().settings, **dict.fromkeys(("replay_batches", "load_weights", "inject_gradients"), f"{there}@0")}
    runs = [Synthetic(facts=facts, settings=asked).write(tmp_path / name) for name in ("one", "other")]
    opened: list[object] = []
    monkeypatch.setattr(upath, "UPath", opened.append)
    for command, *other in map(str.split, commands):
        done = invoke(app, [command, str(runs[0]), *[str(runs[1]) for _ in other]])
        assert isinstance(done.exception, AlignHooksError | SystemExit | None), done.exception
    assert not opened


def test_a_run_in_storage_feeds_another_and_none_is_recorded_there(honest: Path, there: str, tmp_path: Path) -> None:
    given = settings(load_weights=f"{there}@1", run=tmp_path / "next").load_weights
    assert str(given) == f"{there}@1"
    assert np.array_equal(open_weights(given)["model.norm.weight"], open_run(honest).weights(1)["model.norm.weight"])
    with pytest.raises(SettingsError, match=r"ALIGN_HOOKS_RUN.* is an address of object storage, which is read and never written"):
        settings(run=there)


def test_an_error_of_the_storage_is_a_line(there: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(there)
    monkeypatch.setattr(type(run.path.fs), "cat_file", mock.Mock(side_effect=RuntimeError("the token expired\nand more")))
    for read in (lambda: run.gradients(0), lambda: open_run(there)):
        with pytest.raises(RecordError, match="RuntimeError: the token expired"):
            read()


# ---- a real server


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a bucket of an S3-compatible server on this machine."""
    server = Path(sys.executable).parent / "rclone"
    if importlib.util.find_spec("s3fs") is None or not server.exists():
        pytest.skip("s3fs or rclone is not installed: make storage has both in an environment of their own")
    (tmp_path / "served/bucket").mkdir(parents=True)
    log = (tmp_path / "log").open("wb")
    command = [server, "serve", "s3", "--addr", "127.0.0.1:0", "--auth-key", f"{KEY},{SECRET}", tmp_path / "served"]
    with log, subprocess.Popen(command, stderr=log) as process:
        try:
            port = port_of(tmp_path / "log")
            given = {"ACCESS_KEY_ID": KEY, "SECRET_ACCESS_KEY": SECRET, "ENDPOINT_URL": f"http://127.0.0.1:{port}"}
            given["RESPONSE_CHECKSUM_VALIDATION"] = "when_required"  # rclone answers a range with the checksum of the whole object
            for name, value in given.items():
                monkeypatch.setenv(f"AWS_{name}", value)
            upath.UPath("s3://bucket").fs.clear_instance_cache()  # of the server before
            yield "s3://bucket"
        finally:
            process.terminate()


def port_of(log: Path) -> int:
    """The port that the server says it listens on, once it answers."""
    for _ in range(300):
        said = log.read_text()
        if "http://127.0.0.1:" in said:
            port = int(said.split("http://127.0.0.1:")[1].split("/")[0])
            connection = HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/")
            connection.getresponse()
            return port
        time.sleep(0.1)
    pytest.fail(f"the server did not start: {log.read_text()}")


@pytest.mark.parametrize("engine", ["none", "threads:8", "processes:2"])
def test_a_real_server(tmp_path: Path, s3: str, engine: str) -> None:
    same_answers(tmp_path, s3, engine)


def test_the_command_line_reads_from_a_real_server(tmp_path: Path, s3: str) -> None:
    put(Synthetic().write(tmp_path / "run"), f"{s3}/run")
    for command in (["show", f"{s3}/run", "--verify"], ["compare", f"{s3}/run", str(tmp_path / "run")]):
        done = subprocess.run([sys.executable, "-m", "align_hooks", *command], capture_output=True, text=True, timeout=120)
        assert done.returncode in (0, 3, 4), done.stderr
        assert "internal error" not in done.stderr
