"""One run as an HTML page: what it holds, its health and self-check, its curves, its configuration."""

from __future__ import annotations

from align_hooks.compare.health import Health
from align_hooks.messages import message
from align_hooks.record.holdings import ranges
from align_hooks.report import plots
from align_hooks.report.configuration import configurations
from align_hooks.report.frame import render
from align_hooks.report.page import curve_plot
from align_hooks.report.run_text import headline
from align_hooks.report.text import size

SECTIONS = (
    ("health", message("health.health")),
    ("holds", message("health.holds")),
    ("curves", message("page.nav_curves")),
    ("ranks", message("health.rank_by_rank")),
    ("configurations", message("page.configuration")),
)


def run_page(health: Health, version: str) -> str:
    """The whole page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    curves = [curve_plot(one) for one in health.curves]
    present = {"curves": curves, "ranks": health.ranks}
    settings = configurations([health.side])
    return render(
        "run.html",
        {"eps": 1, "tensors": None, "stages": [], "pictures": [], "plots": curves, "specs": {"steps": plots.steps(single=True)}},
        version=version,
        title=f"align_hooks: {health.side.path}",
        sections=[one for one in SECTIONS if present.get(one[0], True)],
        health=health,
        headline=headline(health),
        holds=[(one.kind, ranges(one.steps), len(one.steps), one.asked, size(one.bytes)) for one in health.holds],
        curves=curves,
        configurations=settings,
    )
