"""The checks of a device: what they print is what they saw, and all of them run where there is no device."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpu import checks, table, trainings
from gpu.trainings import Trained
from real.frameworks import Ended

RESULT = {
    "machine": {"device": "a card", "cuda": "13.0", "torch": "2.11", "megatron-core": "0.19.2", "python": "3.12"},
    "checks": {"it starts": [{"case": "alone", "ok": True, "words": "3 steps"}, {"case": "a | b", "ok": False, "words": "exit code 1"}]},
    "costs": [
        {"kind": "time", "model": "large", "way": "norms", "step": 0.0123, "selected": 1.0125, "of plain": 1.02},
        {"kind": "time", "model": "large", "way": "scalars", "step": 0.012, "selected": None, "of plain": 1.0},
        {"kind": "profile", "way": "norms", "operators": 20.0, "kernels": 12.0, "microseconds": 80.4, "transfers": 0.0},
    ],
}


def test_results_become_tables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checks, costs = (f"<!-- python tests/gpu/table.py {name} -->\n" for name in ("checks", "costs"))
    page = f"before\n{checks}stale\n<!-- end -->\n{costs}<!-- end -->\nafter\n"
    monkeypatch.setattr(table, "RESULTS", tmp_path)
    assert "stale" not in table.written(page)
    (tmp_path / "a_card.json").write_text(json.dumps(RESULT))
    made = table.written(page)
    assert "| it starts | alone | yes | 3 steps |" in made and "| a &#124; b | **no** | exit code 1 |" in made
    assert "| large | norms | 12.3 ms | 1.012 | 1.020 |" in made and "| large | scalars | 12.0 ms |  | 1.000 |" in made
    assert "| norms | 20 | 12 | 80 | 0 |" in made and made.startswith("before") and made.endswith("after\n") and "stale" not in made
    assert table.written(made) == made


def test_pages_have_the_tables_of_all_results() -> None:
    for page in table.PAGES:
        text = page.read_text(encoding="utf-8")
        assert table.PART.search(text) and table.written(text) == text, page


def witness(folder: Path, value: float) -> Trained:
    folder.mkdir()
    arrays = {f"0.layer{index}": np.ones(3, np.float32) for index in range(12)} | {"0.layer3": np.array([1, value], np.float32)}
    np.savez(folder / "witness_0.npz", **arrays, losses=np.array([5.0]))
    return Trained(folder, Ended(0, ""))


def test_a_bit_is_seen(tmp_path: Path) -> None:
    plain, same, other = (witness(tmp_path / name, value) for name, value in (("a", 0.0), ("b", 0.0), ("c", -0.0)))
    assert checks.unequal(plain, same) == [] and checks.unequal(plain, other) == ["0.layer3"]


def test_an_error_is_said_in_one_line(tmp_path: Path) -> None:
    output = "start\nTraceback\nRuntimeError: CUDA out of memory\nalign_hooks: no record\n"
    assert Trained(tmp_path, Ended(1, output)).error == "exit code 1: RuntimeError: CUDA out of memory"
    assert trainings.Trainings("cpu", tmp_path, 1).folder("Llama, fp32/plain") == tmp_path / "Llama_fp32/plain"


@pytest.mark.slow
def test_the_script_runs_to_its_end_without_a_device(tmp_path: Path) -> None:
    """All that ``make gpu`` does but the device: there are no waits, and of graphs a refusal alone."""
    file = tmp_path / "results.json"
    line = [sys.executable, str(Path(__file__).with_name("run.py")), "--device", "cpu", "--seconds", "3000", "--json", str(file)]
    done = subprocess.run([*line, "--only", ",".join(checks.CHECKS)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    outcomes = {(name, each["case"]): each["ok"] for name, cases in json.loads(file.read_text())["checks"].items() for each in cases}
    assert not [key for key, ok in outcomes.items() if ok is False]
    assert {name for (name, _), ok in outcomes.items() if ok} == set(checks.CHECKS)
