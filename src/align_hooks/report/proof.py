"""A proof as a document: its verdict, each training beside the job without hooks, what recording costs, and lines to paste."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from align_hooks.messages import Argument, Message, id_of, message, rendered, sentences, terms
from align_hooks.messages.catalogue import ENGLISH
from align_hooks.proof.cost import Cost
from align_hooks.proof.difference import Difference
from align_hooks.proof.proof import MOST_WAITS, HookFired, Proof, ProofVerdict, WayResult, largest
from align_hooks.proof.training import Trained
from align_hooks.report.blocks import TEXT, Code, DocumentBlock, Heading, Items, Paragraph, Section, Table
from align_hooks.report.document import Document
from align_hooks.report.findings import size
from align_hooks.report.json import SHAPES, Shape, Shapes


def document(proof: Proof, version: str) -> Document:
    """Return the report on a proof; ``version`` is that of align_hooks."""
    sections = [of_ways(proof), *([of_costs(proof.costs)] if proof.costs else []), *of_record(proof), to_paste(proof, version)]
    return Document(proof.verdict, headline(proof), [*remarks(proof)], sections=sections, title=message("proof.page"))


def headline(proof: Proof) -> Argument:
    """Return why the verdict is what it is, in a line."""
    ranks, fixed = len(proof.plain.witnessed), proof.switches
    match proof.verdict:
        case ProofVerdict.PROVEN if fixed:
            return message("proof.proven_with", switches=fixed)
        case ProofVerdict.PROVEN:
            graph = ("proof.graph",) if any(seen.nodes for seen in proof.plain.witnessed) else ()
            equal = terms(map(message, ("proof.losses", *graph, "proof.random", "proof.final")))
            return message("proof.proven", count=proof.asked, ranks=ranks, what=equal)
        case ProofVerdict.UNDECIDED:
            recorded = max(largest(each.differences) for each in proof.ways if each.trained.way.recorded)
            ending = "exceeds" if proof.exceeds_noise else "undecided"
            return message(f"proof.{ending}", switches=fixed, noise=largest(proof.noise), recorded=recorded)
    return sentences(*against(proof))


def against(proof: Proof) -> Iterator[Message]:
    """Yield what keeps a proof from being one, the clearest first."""
    if proof.plain.failure is not None:
        yield with_way(proof.plain, failed(proof.plain))
        return
    unequal = [*proof.accused, *proof.repeated[2:], *(each for each in proof.ways if each.trained.failure is not None)]
    first = next((each for each in unequal if each.verdict is not ProofVerdict.PROVEN), None)
    if first is not None:
        yield with_way(first.trained, words_of(first))  # the others stand in the table
    if waiting := proof.waiting:
        lines = terms(f"{line} {count}" for line, count in waiting.items())
        yield message("proof.waits", count=sum(waiting.values()), most=MOST_WAITS, lines=lines)
    if proof.contradicts:
        yield message("proof.contradicts")
    if proof.verdict is ProofVerdict.NO_PROOF and not first:
        yield from (message(id_of(each)) for each in proof.shortfalls)


def with_way(trained: Trained, what: Argument) -> Message:
    """Return a statement about a training."""
    return message("proof.way", way=trained.way.name, what=what) if trained.way.recorded else message("proof.without", what=what)


def words_of(result: WayResult) -> Argument:
    """Return the first that a training shows beside the job without hooks."""
    if result.trained.failure is not None:
        return failed(result.trained)
    return difference(result.differences[0]) if result.differences else message("proof.equal")


def difference(each: Difference) -> Message:
    """Return a difference in words."""
    facts = {name: getattr(each, name) for name in ("what", "rank", "step", "count", "of", "relative")}
    return message(id_of(each.kind), **facts)


def failed(trained: Trained) -> Message:
    """Return why a training is no part of the proof."""
    assert trained.failure is not None
    last = trained.last_lines[-1] if trained.last_lines else ""
    return message(
        id_of(trained.failure),
        what=terms(trained.refusals) if trained.refusals else last,
        seconds=trained.seconds,
        code=trained.code,
        signal=trained.signal,
        count=trained.steps,
        of=trained.asked,
        ranks=terms(map(str, trained.missing_ranks)),
        folder=str(trained.run.parent.parent),
    )


def remarks(proof: Proof) -> Iterator[DocumentBlock]:
    """Yield what a reader should know beside the verdict."""
    if proof.noise:
        yield Paragraph(message("proof.noise", what=sentences(*map(difference, proof.noise))))
    yield Items([message("proof.refused", what=line) for line in proof.refused])
    if proof.spared is not None:
        yield Paragraph(message("proof.spared", step=proof.spared))
    if any(seen.ignored_limit for seen in proof.plain.witnessed):
        yield Paragraph(message("proof.ignored_limit", count=proof.asked))
    if left_out := {name: count for seen in proof.plain.witnessed for name, count in seen.left_out.items()}:
        yield Paragraph(message("proof.left_out", what=terms(f"{name} ({count})" for name, count in left_out.items())))
    for result in (*proof.ways, *proof.again, *proof.repeated):
        yield Items([with_way(result.trained, problem) for problem in result.trained.problems])
        if result.trained.last_lines and not result.trained.refusals:
            yield Paragraph(with_way(result.trained, message("proof.last_lines")), indent=0)
            yield Code(result.trained.last_lines)


def of_ways(proof: Proof) -> Section:
    """Return the table of the trainings."""
    heads = [message(f"proof.{name}_head") for name in ("way", "steps", "seconds", "result")]
    firsts = [*proof.ways[:1], *proof.repeated[:1]]
    rows = [
        (
            result.trained.way.title,
            str(result.trained.steps),
            f"{result.trained.seconds:.0f}",
            "-" if any(result is each for each in firsts) and result.trained.failure is None else words_of(result),
        )
        for result in (*proof.ways, *proof.again, *proof.repeated)
    ]
    table = Table(heads, rows, numbers=(1, 2), is_fitted=True, caption=message("proof.ways"))
    return Section("ways", message("proof.ways"), message("proof.ways"), [table])


def of_costs(costs: Sequence[Cost]) -> Section:
    """Return the table of what recording costs."""
    heads = [message(f"proof.{name}_head") for name in ("way", "ratio", "spread", "waits", "device", "host")]
    rows = [
        (
            each.way,
            "-" if each.ratio is None else f"{each.ratio:.2f}",
            "-" if each.low is None else f"{each.low:.2f}, {each.high:.2f}",
            "-" if each.waits is None else str(each.waits),
            "-" if each.device_memory is None else signed(each.device_memory),
            signed(each.host_memory),
        )
        for each in costs
    ]
    table = Table(heads, rows, numbers=(1, 2, 3, 4, 5), is_fitted=True, caption=message("proof.cost"))
    return headed("cost", table, nav=message("proof.nav_cost"))


def headed(name: str, block: DocumentBlock, nav: Message | None = None) -> Section:
    """Return a section whose head a text prints too."""
    head = message(f"proof.{name}")
    return Section(name, nav or head, head, [Heading(head, on=TEXT), block])


def signed(bytes: int) -> str:
    """Return a difference of sizes."""
    return size(bytes) if bytes >= 0 else f"-{size(-bytes)}"


def of_record(proof: Proof) -> Iterator[Section]:
    """Yield the state of the record of everything, and its hooks."""
    if proof.health is not None:
        lines = [*(problem.message for problem in proof.health.problems), proof.health.checked, *proof.health.remarks]
        yield headed("record", Items(lines))
    if proof.hooks:
        fired = [f"{hook.name} {hook.calls}" for hook in proof.hooks if hook.calls]
        idle = [message(f"idle_hook.{hook.state}", name=hook.name, why=hook.why) for hook in proof.hooks if not hook.calls]
        yield headed("hooks", Items([message("proof.hooks_fired", what=terms(fired)), *idle]))


def to_paste(proof: Proof, version: str) -> Section:
    """Return lines for an issue: verdict, versions, device and costs, in English."""
    plain = proof.plain.witnessed
    about = {f"{name} {number}": None for seen in plain for name, number in seen.versions.items()}
    devices = dict.fromkeys(seen.device for seen in plain)
    costs = [f"{each.way} {each.ratio:.2f} ({each.low:.2f} to {each.high:.2f})" for each in proof.costs if each.ratio is not None]
    lines = [
        f"align_hooks {version} prove: {rendered(proof.verdict, ENGLISH)}: {rendered(headline(proof), ENGLISH)}",
        f"{', '.join(about) or 'no framework trained'}; {len(plain)} x {', '.join(devices) or 'no device'}; {proof.asked} steps",
        *([f"a step: {', '.join(costs)}"] if costs else []),
        f"command: {shlex.join(proof.command)}",
    ]
    return headed("to_paste", Code(lines))


JSON: Shapes = {
    **SHAPES,
    Proof: Shape(
        """verdict exit_code=verdict.exit_code headline* messages command steps=asked switches versions devices spared refused ways
        again repeated costs noise waiting fired=hooks record=health.condition self_check!""",
        headline=headline,
        versions=lambda proof: {name: version for seen in proof.plain.witnessed for name, version in seen.versions.items()},
        devices=lambda proof: [seen.device for seen in proof.plain.witnessed],
        refused=lambda proof: [*proof.refused],
        self_check=lambda proof: None if proof.health is None else proof.health.checked,
    ),
    WayResult: Shape(
        """recorded=trained.way.name fixed=trained.way.fixed verdict steps=trained.steps seconds=trained.seconds code=trained.code
        failure=trained.failure refusals=trained.refusals problems=trained.problems last_lines=trained.last_lines differences"""
    ),
    Difference: Shape("kind what rank step count of relative"),
    Cost: Shape("recorded=way ratio low high waits lines device_memory host_memory"),
    HookFired: Shape("name state calls why"),
}
"""The keys of a proof in JSON."""
