"""An examination by the doctor as lines of 80 columns, or of a longer path. Needs no library: training nodes have few."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from align_hooks.doctor.examination import Examination
from align_hooks.doctor.frameworks import Framework
from align_hooks.extras import installing

WIDTH = 80


def judged(examination: Examination) -> tuple[str, str, str]:
    """Return the verdict, its style on a terminal, and the number of problems or the sides that are ready."""
    if problems := len(examination.problems):
        return "not ready", "bold red", f"{problems} problem{'s' * (problems > 1)}"
    return "ready", "bold green", " and ".join(examination.ready)


def lines(examination: Examination, *, everything: bool = False) -> list[str]:
    """Return an examination below its verdict; with ``everything``, each hook and its patch point too."""
    reasons = [f"{number}. {problem}" for number, problem in enumerate(examination.problems, 1)]
    reasons += [f"note: {note}" for note in examination.notes]
    return [
        *(line for text in reasons for line in _wrapped(text, 2)),
        "",
        *_about(examination),
        *(line for framework in examination.frameworks for line in _framework(framework, everything=everything)),
        *_variables(examination),
        *(["", "space"] if examination.space else []),
        *(line for text in examination.space for line in _wrapped(text, 2)),
    ]


def _about(examination: Examination) -> Iterator[str]:
    about = examination.about
    yield from _wrapped(f"align_hooks {about['align_hooks']}, Python {about['python']}, {about['interpreter']}", 0)
    yield from _wrapped(f"extras: {', '.join(name for name, missing in examination.extras.items() if not missing) or 'none'}", 2)
    for name, missing in examination.extras.items():
        if missing:
            yield from _wrapped(f"extra {name} is not installed (it lacks {', '.join(missing)}):", 2)
            yield f"    {installing(name)}"


def _framework(framework: Framework, *, everything: bool) -> Iterator[str]:
    yield ""
    if not framework.installed:
        yield f"{framework.title}: not installed here"
        return
    yield f"{framework.title}: {'every hook that is asked for fits' if not framework.problems else 'would not start'}"
    for name, package in framework.packages.items():
        yield from _wrapped(f"{name} {package['version'] or '-'}  {package['place'] or package['why'] or 'not installed'}", 2)
    if framework.uncompiled:
        yield from _wrapped(f"the data helper (helpers_cpp) in {framework.uncompiled[0]} is not compiled; training does that first", 2)
    if framework.hooks:
        yield from _wrapped(_hooks(framework), 2)
    for hook in framework.hooks if everything else ():
        asked = "" if hook["asked"] else ", not asked for"
        yield from _wrapped(f"{hook['name']}: {hook['seam']}: {hook['state']}{asked} ({hook['purpose']}; {hook['supports']})", 4)
        if hook["why"]:
            yield from _wrapped(hook["why"], 6)
    for device in framework.devices:
        yield from _wrapped(f"{device['name']}{_memory(device['free'], device['total'])}", 2)
    if not framework.devices and not framework.problem:
        yield "  no accelerator"


def _hooks(framework: Framework) -> str:
    text = f"{len(framework.fitting)} of {len(framework.hooks)} seams found"
    if framework.elsewhere:
        text += f"; not here and not needed: {', '.join(framework.elsewhere)}"
    bad = [hook["name"] for hook in framework.hooks if hook["name"] not in (*framework.fitting, *framework.elsewhere)]
    return text + (f"; missing: {', '.join(bad)}" if bad else "")


def _memory(free: int | None, total: int | None) -> str:
    if not total:
        return ""
    return f", {free / 1e9:.1f} of {total / 1e9:.1f} GB free" if free else f", {total / 1e9:.1f} GB in all"


def _variables(examination: Examination) -> Iterator[str]:
    nothing = "variables: no ALIGN_HOOKS_* is set, so nothing would be attached (align-hooks env lists them)"
    yield ""
    yield from ["variables"] if examination.variables else _wrapped(nothing, 0)
    for variable in examination.variables:
        effect = f"  {variable.found or 'see above'}" if variable.found or variable.problem else ""
        yield from _wrapped(f"{variable.name}={variable.value}{effect}", 2)
    for name, value in examination.beside.items():
        yield f"  {name}={value}"


def _wrapped(text: str, indent: int) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2), break_long_words=False, break_on_hyphens=False
    )
