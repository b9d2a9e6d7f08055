"""What the demo refuses before it starts; ``make demo`` runs it."""

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from align_hooks.cli.demo import demo, script
from align_hooks.errors import AlignHooksError

ROOT = Path(__file__).parents[1]


def test_the_script_is_that_of_the_checkout() -> None:
    assert script() == ROOT / "launch" / "demo.py"


def test_what_is_not_installed_is_named_with_its_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("mindformers", "jinja2") else real(name))
    with pytest.raises(AlignHooksError, match=r"mindformers, jinja2 is not installed here; pip install 'jinja2>=3' .*'mindformers<"):
        demo(tmp_path)


def test_a_directory_of_somebody_elses_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    done = subprocess.run([sys.executable, str(script()), str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stderr) == (2, f"{tmp_path} holds something that is no demo; name another directory\n")
    assert (tmp_path / "thesis.txt").read_text() == "years of work"
