"""One run as a document: its condition, the problems of its record, its contents, curves and configuration."""

from __future__ import annotations

from collections.abc import Iterator

from align_hooks.comparison.health import Health, Rank
from align_hooks.messages import Argument, Joined, message, terms
from align_hooks.record.format.schema import HookCount
from align_hooks.record.inventory import Holding, ranges
from align_hooks.record.read.problems import Problem
from align_hooks.report import identity
from align_hooks.report.blocks import DocumentBlock, Items, Medium, Paragraph, Plots, Section, Special, Table, fact_text
from align_hooks.report.configuration import configurations
from align_hooks.report.curve_plots import curve_plot
from align_hooks.report.document import Document
from align_hooks.report.findings import size, values
from align_hooks.report.identity import layout
from align_hooks.report.json import SHAPES, Shape, Shapes

SHOWN = 5
"""The most problems and contradictions that a terminal lists."""


def document(health: Health) -> Document:
    """Return the report on a run."""
    return Document(
        health.condition,
        headline(health),
        [*state(health)],
        [Section("holds", message("health.holds"), message("health.what_it_holds"), [contents(health)])],
        [*sections(health)],
        title=f"align_hooks: {health.side.path}",
        sides=identity.of_runs([health.side]),
    )


def state(health: Health) -> Iterator[DocumentBlock]:
    """Yield the problems of the record, what a reader should know, and contradictions."""
    yield Items([problem.message for problem in health.problems], most=SHOWN, more="health.more_problems")
    yield Items([*health.remarks, message("health.self_check", checked=health.checked)])
    if health.contradicted is not None:
        yield Paragraph(health.contradicted, "red")
    lines = [fact_text(finding.what, values(finding)) for finding in health.contradictions]
    yield Items(lines, most=SHOWN, more="health.more_contradictions")


def contents(health: Health) -> Table:
    """Return a table of the quantities on record."""
    heads = message("health.kind"), message("health.size"), message("health.asked"), message("health.steps")
    rows = [(each.kind, size(each.bytes), each.asked, f"{ranges(each.steps) or '-'} ({len(each.steps)})") for each in health.holds]
    return Table(heads, rows, numbers=(1,), caption=message("health.what_it_holds"), look="holdings")


def sections(health: Health) -> Iterator[Section]:
    """Yield what only a page shows: curves, ranks and configuration."""
    if health.curves:
        nav = message("page.nav_curves")
        yield Section(
            "curves", nav, message("page.curves"), [Plots(lambda: [*map(curve_plot, health.curves)], single=True)], on=Medium.PAGE
        )
    if health.ranks:
        head = message("health.rank_by_rank")
        yield Section("ranks", head, head, [ranks(health)], on=Medium.PAGE)
    head = message("page.configuration")
    yield Section(
        "configurations", head, head, [Special("configuration_folds", lambda: {"groups": configurations([health.side])})], on=Medium.PAGE
    )


def ranks(health: Health) -> Table:
    """Return a table of the ranks: place, host, end, and what each recorded."""
    heads: list[Argument] = ["rank", *map(message, ("health.place", "health.host", "health.ended", "health.recorded", "health.hooks"))]
    rows = [
        (
            str(rank.rank),
            rank.place,
            rank.host,
            rank.ended,
            ", ".join(f"{kind} {count}" for kind, count in rank.recorded.items()),
            ", ".join(f"{name} {hook.calls}" for name, hook in rank.hooks.items()),
        )
        for rank in health.ranks
    ]
    return Table(heads, rows, caption=message("health.rank_by_rank"))


def headline(health: Health) -> Joined:
    """Return a line that describes a run: framework, precision, layout and steps."""
    side, planned = health.side, health.planned
    steps = message("health.steps_of", count=side.steps, planned=planned) if planned else message("steps.count", count=side.steps)
    return terms([_framework(health), side.facts.training.precision or None, layout(side), steps])


def _framework(health: Health) -> Argument:
    facts = health.side.facts
    if not facts.framework:
        return message("health.unknown_framework" if health.side.ranks else "health.directory_made_by_hand")
    version = next((str(facts.versions[name]) for name in ("megatron-core", "mindformers") if name in facts.versions), "")
    return f"{facts.framework} {version}".strip()


JSON: Shapes = {
    **SHAPES,
    Health: Shape(
        """condition exit_code framework=side.facts.framework versions=side.facts.versions
        compute_type=side.facts.training.compute_type ranks=side.ranks layout=side.layout steps=side.steps planned_steps=planned
        holds of_ranks=ranks problems self_check=checked! contradictions remarks! curves"""
    ),
    Holding: Shape("quantity=kind steps count asked bytes", steps=lambda each: ranges(each.steps), count=lambda each: len(each.steps)),
    Rank: Shape("rank host place ended! hooks recorded"),
    HookCount: Shape("state calls"),
    Problem: Shape("kind words=message! rank step place error"),
}
"""The keys of the run in JSON."""
