"""A watch as an HTML page, which a browser reloads while the job runs."""

from __future__ import annotations

from align_hooks.comparison.control_band.watching import JobWatch, Watched
from align_hooks.messages import Message, Side, message
from align_hooks.report import glossary, identity, plots
from align_hooks.report.console import plain
from align_hooks.report.curve_plots import curve_plot
from align_hooks.report.frame import for_script, render
from align_hooks.report.watch_text import alarm_words, judged_by, progress_words

COLOURS = {Watched.STAYED: "aligned", Watched.LEFT: "diverged", Watched.STOPPED: "not-comparable", Watched.OPEN: "inconclusive"}
"""The verdict of a comparison with the same colours, as the style sheet calls it."""
MOST = 1000
"""The most steps of a curve that are drawn: the columns of a screen."""


def watch_page(watch: JobWatch, candidate: str, outcome: Watched | None, why: Message | None, version: str, every: int) -> str:
    """Return the page, as text that encodes to UTF-8; while ``outcome`` is None, a browser reloads it after ``every`` seconds."""
    curves = [curve_plot(curve) for curve in watch.curves(MOST)]
    shown = outcome or (Watched.LEFT if watch.alarms else None)
    return render(
        "watch.html",
        for_script(curves, {"steps": plots.steps()}),
        version=version,
        title=f"align_hooks: {candidate}",
        sections=[("verdict", message("page.nav_verdict")), *([("curves", message("page.nav_curves"))] if curves else [])],
        identities=[
            identity.of_run(Side.REFERENCE, Side.REFERENCE, watch.trusted),
            identity.Identity(Side.CANDIDATE, Side.CANDIDATE, plain(candidate)),
        ],
        look=COLOURS[shown] if shown else "inconclusive",
        chip=shown or message("watch.running"),
        progress=progress_words(watch),
        alarms=[alarm_words(alarm) for alarm in watch.alarms],
        why=why,
        judged=judged_by(watch),
        every=None if outcome else every,
        curves=curves,
        words=[word for word in glossary.WORDS if word.slug in ("limit", "noise")],
    )
