"""The Python that a version needs, with what is installed beside it. Knows no framework."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from checkout import Failed


def environment(python: str, packages: tuple[str, ...], home: Path, over: tuple[str, ...] = ()) -> Path:
    """The interpreter of a Python version with its packages, in ``home``, made once; ours where nothing has to be installed. ``over`` are
    installed last, in the place of what the others asked for."""
    if not packages:
        return Path(sys.executable)
    ready, wanted, made = home / "ready.json", [python, *packages, *over], home / "bin" / "python"
    if not ready.exists() or json.loads(ready.read_text()) != wanted:
        shutil.rmtree(home, ignore_errors=True)
        subprocess.run([interpreter(python), "-m", "venv", str(home)], check=True)
        for asked, options in ((packages, ()), (over, ("--no-deps",))):
            command = [str(made), "-m", "pip", "install", "--quiet", "--no-cache-dir", *options, *asked]
            if asked and subprocess.run(command, check=False).returncode:
                raise Failed(f"pip could not install {' '.join(asked)}")
        ready.write_text(json.dumps(wanted))
    return made


def interpreter(python: str) -> str:
    """An interpreter of that version on PATH which can make virtual environments."""
    probe = f"import sys, venv, ensurepip; print(sys.executable if '%d.%d' % sys.version_info[:2] == '{python}' else '')"
    for folder in os.environ["PATH"].split(os.pathsep):
        for name in (f"python{python}", "python3", "python"):
            if candidate := shutil.which(name, path=folder):
                # From /, where no .python-version of a project decides what pyenv's python is.
                executable = subprocess.run([candidate, "-c", probe], cwd="/", capture_output=True, text=True, check=False).stdout.strip()
                if executable:
                    return executable
    raise Failed(f"no Python {python} on PATH; install it, for example with pyenv install {python}")


def versions(python: Path, names: tuple[str, ...]) -> dict[str, str]:
    """Versions of Python and of those packages that are installed: what a run's numbers may depend on."""
    code = f"""
import importlib.metadata, json, platform
found = {{one.metadata["Name"].lower(): one.version for one in importlib.metadata.distributions()}}
print(json.dumps({{"python": platform.python_version()}} | {{name: found[name] for name in {names} if name in found}}))
"""
    return json.loads(subprocess.run([str(python), "-c", code], capture_output=True, text=True, check=True).stdout)
