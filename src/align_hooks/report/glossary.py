"""The words of a page with their explanations, which open in place, and the method of each number."""

from __future__ import annotations

from align_hooks.comparison.stages.registry import LADDER
from align_hooks.messages import Argument, Message, message
from align_hooks.report.document import GlossaryEntry

WORDS = (
    GlossaryEntry("limit", message("page.limit"), message("method.limits")),
    GlossaryEntry("relative-error", message("method.name_relative_error"), message("method.relative_error")),
    GlossaryEntry("eps", message("word.name_eps"), message("word.eps")),
    GlossaryEntry("noise", message("method.name_noise_band"), message("method.noise_band")),
    GlossaryEntry("exact-step", message("word.name_exact_step"), message("word.exact_step")),
    GlossaryEntry("injected", message("word.name_injected"), message("word.injected")),
    GlossaryEntry("local-norm", message("word.name_local_norm"), message("method.local_norms")),
    GlossaryEntry("scale", message("page.best_scale"), message("word.scale")),
)
"""Words that occur in many places of a page."""
METHODS: tuple[tuple[Argument, Message, Argument], ...] = (
    (message("method.name_relative_error"), message("method.relative_error"), "align_hooks.comparison.metrics.measures"),
    (
        message("method.name_limits"),
        message("method.limits"),
        "align_hooks.comparison.metrics.limits, align_hooks.comparison.noise, docs/zoo.md",
    ),
    *((stage.title, stage.method, stage.source) for stage in LADDER),
    (message("method.name_noise_band"), message("method.noise_band"), None),
    *((word.name, word.text, None) for word in WORDS if word.slug in ("eps", "exact-step", "injected", "scale")),
)
"""The method of each number, with its formula, and the modules or papers that it is from."""


def slug(name: str) -> str:
    """Return the end of a stage's address on the page."""
    return "stage-" + "".join(letter if letter.isalnum() else "-" for letter in name)
