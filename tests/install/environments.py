"""The environments beside which this project is installed, and what a result of ``check.py`` says. Imports nothing of theirs or ours."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

RESULTS = Path(__file__).parent / "results"
EXTRAS = {"plain": "", "html": "[html]"}
"""What the README tells people to add to ``pip install .``, where they train and where they compare."""


class Package(TypedDict):
    """What an environment has of a package, and what that asks for without its extras."""

    version: str
    requires: list[str]


Packages = dict[str, Package]
"""By name."""


@dataclass(frozen=True)
class Environment:
    """A framework as its users install it: the side of ours that attaches to it, Python's minor version, what pip is asked for."""

    side: str
    python: str
    packages: tuple[str, ...]


ENVIRONMENTS = {
    "mindformers-1.9.0": Environment("ms", "3.12", ("mindspore==2.9.0", "mindformers==1.9.0")),
    "mindformers-1.7.0": Environment("ms", "3.11", ("mindspore==2.7.1", "mindformers==1.7.0")),
    "megatron-core-0.19.2": Environment("torch", "3.12", ("torch==2.13.0", "megatron-core[training]==0.19.2")),
}

HEAD = ["with", "Python", "packages before", "added by `pip install .`", "added by `'.[html]'`", "moved", "`pip check`", "recorded steps"]


def is_proven(result: dict[str, Any]) -> bool:
    """Whether nothing was moved or broken, and training was recorded, both plain and with pages."""
    kinds = [result.get(kind) for kind in EXTRAS]
    return result["gap"] is None and all(
        kind and not kind["moved"] and not kind["complaints"] and kind["exit_code"] == 0 and kind["steps"] for kind in kinds
    )


def row(result: dict[str, Any]) -> str:
    """One line of Markdown."""
    kinds = [result[kind] for kind in EXTRAS if kind in result]
    added = [", ".join(f"{name} {version}" for name, version in kind["added"].items()) or "nothing" for kind in kinds]
    changed = {f"{name} {was} -> {now}" for kind in kinds for name, (was, now) in kind["moved"].items()}
    complaints = {complaint for kind in kinds for complaint in kind["complaints"]}
    steps = [str(kind["steps"]) if not kind["exit_code"] else f"ended with {kind['exit_code']}: {kind['said']}" for kind in kinds]
    cells = [", ".join(result["packages"]), result["python"], str(len(result.get("before", ()))), *[*added, "", ""][:2]]
    cells += [", ".join(sorted(changed)) or "nothing", ", ".join(sorted(complaints)) or "nothing new", result["gap"] or ", ".join(steps)]
    return line(cells)


def line(cells: list[str]) -> str:
    """One line of a Markdown table."""
    return f"| {' | '.join(cells)} |"
