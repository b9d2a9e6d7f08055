"""What the doctor found, as lines of text: the verdict, why, then what it looked at. Needs no library, for training nodes have few."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

from align_hooks.doctor.examination import Examination
from align_hooks.doctor.frameworks import Framework

WIDTH = 100


def lines(found: Examination, *, everything: bool = False) -> list[str]:
    """All of an examination; with ``everything`` each hook and its seam too."""
    return [*_verdict(found), "", *_about(found), *_frameworks(found, everything=everything), *_variables(found), *_space(found)]


def verdict(found: Examination) -> str:
    """``ready``, or that it is not."""
    if found.problems:
        return "not ready: 1 problem" if len(found.problems) == 1 else f"not ready: {len(found.problems)} problems"
    return f"ready: {' and '.join(found.ready)}"


def _verdict(found: Examination) -> Iterator[str]:
    yield verdict(found)
    for number, problem in enumerate(found.problems, 1):
        yield from _wrapped(f"{number}. {problem}", 2)
    for note in found.notes:
        yield from _wrapped(f"note: {note}", 2)


def _about(found: Examination) -> Iterator[str]:
    about = found.about
    yield f"align_hooks {about['align_hooks']}, Python {about['python']}, {about['interpreter']}"
    whole = [name for name, missing in found.extras.items() if not missing]
    yield f"  extras: {', '.join(whole) or 'none'}"
    for name, missing in found.extras.items():
        if missing:
            yield from _wrapped(f"extra {name} is not installed (it lacks {', '.join(missing)}): pip install 'align-hooks[{name}]'", 2)


def _frameworks(found: Examination, *, everything: bool) -> Iterator[str]:
    for one in found.frameworks:
        yield ""
        if not one.installed:
            yield f"{one.title}: not installed here"
            continue
        yield f"{one.title}: {'every hook that is asked for fits' if not one.problems else 'would not start'}"
        for name, package in one.packages.items():
            yield f"  {name} {package['version'] or '-'}  {package['place'] or package['why'] or 'not installed'}"
        if one.hooks:
            yield from _wrapped(_hooks(one), 2)
        for hook in one.hooks if everything else ():
            asked = "" if hook["asked"] else ", not asked for"
            yield from _wrapped(f"{hook['name']}: {hook['seam']}: {hook['state']}{asked} ({hook['purpose']}; {hook['supports']})", 4)
            if hook["why"]:
                yield from _wrapped(hook["why"], 6)
        for device in one.devices:
            yield f"  {device['name']}{_memory(device)}"
        if not one.devices and not one.problem:
            yield "  no accelerator"


def _hooks(one: Framework) -> str:
    there = f"{len(one.fitting)} of {len(one.hooks)} seams found"
    gone = f"; not here and not needed: {', '.join(one.elsewhere)}" if one.elsewhere else ""
    bad = [hook["name"] for hook in one.hooks if hook["name"] not in (*one.fitting, *one.elsewhere)]
    return there + gone + (f"; missing: {', '.join(bad)}" if bad else "")


def _memory(device: Mapping[str, Any]) -> str:
    if not device["total"]:
        return ""
    free = f"{device['free'] / 1e9:.1f} of " if device["free"] else ""
    return f", {free}{device['total'] / 1e9:.1f} GB {'free' if free else 'in all'}"


def _variables(found: Examination) -> Iterator[str]:
    yield ""
    yield (
        "variables" if found.variables else "variables: no ALIGN_HOOKS_* is set, so nothing would be attached (align-hooks env lists them)"
    )
    for one in found.variables:
        yield from _wrapped(f"{one.name}={one.value}" + (f"  {one.found or 'see above'}" if one.found or one.problem else ""), 2)
    for name, value in found.beside.items():
        yield f"  {name}={value}"


def _space(found: Examination) -> Iterator[str]:
    if found.space:
        yield ""
        yield "space"
    for text in found.space:
        yield from _wrapped(text, 2)


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_long_words=False, break_on_hyphens=False
    )
