"""An examination by the doctor as blocks: whether a run would start here, why not, and what there is."""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.doctor.examination import Examination
from align_hooks.doctor.frameworks import Framework
from align_hooks.extras import installing
from align_hooks.report.blocks import Code, DocumentBlock, Paragraph


def report(examination: Examination, *, everything: bool = False) -> Iterator[DocumentBlock]:
    """Yield an examination, its verdict first; with ``everything``, each hook and its patch point too."""
    yield judged(examination)
    yield from (Paragraph(f"{number}. {problem}") for number, problem in enumerate(examination.problems, 1))
    yield from (Paragraph(f"note: {note}") for note in examination.notes)
    yield Code([""], 0)
    yield from _about(examination)
    for framework in examination.frameworks:
        yield from _framework(framework, everything=everything)
    yield from _variables(examination)
    if examination.space:
        yield Code(["", "space"], 0)
        yield from map(Paragraph, examination.space)


def judged(examination: Examination) -> Paragraph:
    """Return the verdict, with the number of problems or the sides that are ready."""
    if problems := len(examination.problems):
        return Paragraph(f"{problems} problem{'s' * (problems > 1)}", "bold red", 0, "not ready")
    return Paragraph(" and ".join(examination.ready), "bold green", 0, "ready")


def _about(examination: Examination) -> Iterator[DocumentBlock]:
    about = examination.about
    yield Paragraph(f"align_hooks {about['align_hooks']}, Python {about['python']}, {about['interpreter']}", indent=0)
    if about.get("drivers"):
        yield Paragraph(about["drivers"])
    yield Paragraph(f"extras: {', '.join(name for name, missing in examination.extras.items() if not missing) or 'none'}")
    for name, missing in examination.extras.items():
        if missing:
            yield Paragraph(f"extra {name} is not installed (it lacks {', '.join(missing)}):")
            yield Code([installing(name)])


def _framework(framework: Framework, *, everything: bool) -> Iterator[DocumentBlock]:
    if not framework.installed:
        yield Code(["", f"{framework.title}: not installed here"], 0)
        return
    yield Code(["", f"{framework.title}: {'every hook that is asked for fits' if not framework.problems else 'would not start'}"], 0)
    for name, package in framework.packages.items():
        yield Paragraph(f"{name} {package['version'] or '-'}  {package['place'] or package['why'] or 'not installed'}")
    if framework.uncompiled:
        yield Paragraph(f"the data helper (helpers_cpp) in {framework.uncompiled[0]} is not compiled; training does that first")
    if framework.hooks:
        yield Paragraph(_hooks(framework))
    for hook in framework.hooks if everything else ():
        asked = "" if hook["asked"] else ", not asked for"
        yield Paragraph(f"{hook['name']}: {hook['patch_point']}: {hook['state']}{asked} ({hook['purpose']}; {hook['supports']})", indent=4)
        if hook["why"]:
            yield Paragraph(hook["why"], indent=6)
    for device in framework.devices:
        yield Paragraph(f"{device['name']}{_memory(device['free'], device['total'])}")
    if not framework.devices and not framework.problem:
        yield Paragraph("no accelerator")


def _hooks(framework: Framework) -> str:
    text = f"{len(framework.fitting)} of {len(framework.hooks)} patch points found"
    if framework.elsewhere:
        text += f"; not here and not needed: {', '.join(framework.elsewhere)}"
    bad = [hook["name"] for hook in framework.hooks if hook["name"] not in (*framework.fitting, *framework.elsewhere)]
    return text + (f"; missing: {', '.join(bad)}" if bad else "")


def _memory(free: int | None, total: int | None) -> str:
    if not total:
        return ""
    return f", {free / 1e9:.1f} of {total / 1e9:.1f} GB free" if free else f", {total / 1e9:.1f} GB in all"


def _variables(examination: Examination) -> Iterator[DocumentBlock]:
    nothing = "variables: no ALIGN_HOOKS_* is set, so nothing would be attached (align-hooks env lists them)"
    yield Code([""], 0)
    yield Paragraph("variables" if examination.variables else nothing, indent=0)
    for variable in examination.variables:
        effect = f"  {variable.found or 'see above'}" if variable.found or variable.problem else ""
        yield Paragraph(f"{variable.name}={variable.value}{effect}")
    yield Code([f"{name}={value}" for name, value in examination.beside.items()], 2)
