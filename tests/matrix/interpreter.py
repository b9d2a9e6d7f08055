"""The Python that a version needs, with what is installed beside it. Knows no framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from checkout import Failed


def environment(python: str, packages: tuple[str, ...], home: Path) -> Path:
    """The interpreter of a Python version with its packages, in ``home``; ours where nothing has to be installed."""
    if not packages:
        return Path(sys.executable)
    ready = home / "ready.json"
    if not ready.exists() or json.loads(ready.read_text()) != list(packages):
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([interpreter(python), "-m", "venv", str(home)], check=True)
        subprocess.run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir", *packages], check=True)
        ready.write_text(json.dumps(packages))
    return home / "bin" / "python"


def interpreter(python: str) -> str:
    """An interpreter of that version on PATH which can make virtual environments."""
    probe = f"import sys, venv, ensurepip; sys.exit('%d.%d' % sys.version_info[:2] != '{python}')"
    for folder in os.environ["PATH"].split(os.pathsep):
        for name in (f"python{python}", "python3", "python"):
            found = shutil.which(name, path=folder)
            # From /, where no .python-version of a project decides what pyenv's python is.
            if found and subprocess.run([found, "-c", probe], cwd="/", capture_output=True, check=False).returncode == 0:
                return subprocess.run(
                    [found, "-c", "import sys; print(sys.executable)"], cwd="/", capture_output=True, text=True
                ).stdout.strip()
    raise Failed(f"no Python {python} on PATH; install it, for example with pyenv install {python}")


def packages(python: Path) -> dict[str, str]:
    """Versions of what a run's numbers may depend on."""
    names = ("torch", "numpy", "pybind11", "triton", "einops", "wrapt", "safetensors")
    code = f"""
import importlib.metadata, json, platform
found = {{one.metadata["Name"].lower(): one.version for one in importlib.metadata.distributions()}}
print(json.dumps({{"python": platform.python_version()}} | {{name: found[name] for name in {names} if name in found}}))
"""
    return json.loads(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout)
