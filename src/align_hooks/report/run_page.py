"""One run as an HTML page: contents, health, self-check, curves and configuration."""

from __future__ import annotations

from align_hooks.comparison.health import Health
from align_hooks.messages import message
from align_hooks.record.inventory import ranges
from align_hooks.report import identity, plots
from align_hooks.report.configuration import configurations
from align_hooks.report.curve_plots import curve_plot
from align_hooks.report.frame import for_script, render
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
    """Return the page, as text that encodes to UTF-8; ``version`` is that of align_hooks."""
    curves = [curve_plot(curve) for curve in health.curves]
    present = {"curves": curves, "ranks": health.ranks}
    return render(
        "run.html",
        for_script(curves, {"steps": plots.steps(single=True)}),
        version=version,
        title=f"align_hooks: {health.side.path}",
        sections=[section for section in SECTIONS if present.get(section[0], True)],
        identities=identity.of_runs([health.side]),
        health=health,
        headline=headline(health),
        holds=[(holding.kind, ranges(holding.steps), len(holding.steps), holding.asked, size(holding.bytes)) for holding in health.holds],
        curves=curves,
        configurations=configurations([health.side]),
    )
