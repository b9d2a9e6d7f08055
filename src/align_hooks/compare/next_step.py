"""The one command to run after a verdict: a table of facts, of which the first row that fits is told.

What is a command is written so that it can be pasted before the one that started the run; the runs' own commands are not on record.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from align_hooks.compare.ladder import Ladder
from align_hooks.compare.rows import Rows
from align_hooks.compare.verdict import Blame, Reason, Stage, Status, Verdict, differing

FEED = "ALIGN_HOOKS_REPLAY_BATCHES={reference} ALIGN_HOOKS_LOAD_WEIGHTS={reference}@{first}"
FED = "ALIGN_HOOKS_RUN={again} " + FEED + " <the candidate's command>"
NOISE = (
    "ALIGN_HOOKS_RUN={noise} ALIGN_HOOKS_PERTURB=1 ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_LOCAL_NORMS=all ALIGN_HOOKS_SKETCHES=all "
    + FEED
    + " <the reference's command>, then align-hooks compare {reference} {candidate} --noise {noise}"
)
STORE = (
    "record the reference with what a replay needs, ALIGN_HOOKS_BATCHES=all ALIGN_HOOKS_WEIGHTS={first} <the reference's command>, and the "
    "candidate from it"
)

SETTING_OF_ROWS = {"torch": "by --padded-vocab-size {rows} or --make-vocab-size-divisible-by", "ms": "vocab_size: {rows}"}
"""How each side is told how many rows its embedding has, padding and all."""


LOGS = (
    "record both runs, the candidate on the reference's weights and batches: a log cannot tell a fault from other weights or data; " + STORE
)


@dataclass(frozen=True, slots=True)
class Advice:
    """What to do where ``verdict`` fell at ``place`` (any where empty) and every fact in ``given`` holds, or with ``not `` does not."""

    verdict: Verdict
    what: str
    place: str = ""
    given: tuple[str, ...] = ()


ADVICE = (
    Advice(Verdict.DIVERGED, "set {setting} alike on both sides and record the candidate again", "configuration"),
    Advice(Verdict.DIVERGED, "record the candidate on the reference's batches: " + FED, "data", ("fed", "not replayed")),
    Advice(Verdict.DIVERGED, "record the candidate from the reference's weights: " + FED, "weights", ("fed", "not loaded")),
    Advice(
        Verdict.DIVERGED,
        "mend the conversion of {suspect}, or let align_hooks convert: " + FED,
        "weights",
        ("fed",),
    ),
    *(
        Advice(Verdict.DIVERGED, "set {setting} alike on both sides and record the candidate again", place, ("settings",))
        for place in ("forward", "state")
    ),
    Advice(
        Verdict.DIVERGED,
        "record the candidate without the overlap of parameter gathers, then on one rank: " + FED,
        "forward",
        ("fed", "one rank"),
    ),
    Advice(
        Verdict.DIVERGED,
        "see what the checkpoint holds of this and what loading it restores, then go on from it again on the reference's batches: "
        "ALIGN_HOOKS_RUN={again} ALIGN_HOOKS_REPLAY_BATCHES={reference} <the candidate's command>",
        "state",
        ("fed", "resumed"),
    ),
    Advice(
        Verdict.DIVERGED,
        "record both runs with dropout 0, or the candidate without recomputation: " + FED,
        "state",
        ("fed",),
    ),
    Advice(Verdict.DIVERGED, "narrow it down by measured limits: " + NOISE, "forward", ("fed", "not measured")),
    Advice(
        Verdict.DIVERGED,
        "ask a third opinion which side is right: transformers' from_pretrained('{weights}') on the tokens beside it; "
        "then read the code around {suspect}",
        "forward",
        ("checkpoint",),
    ),
    Advice(
        Verdict.DIVERGED,
        "store the first step: ALIGN_HOOKS_GRADIENTS={first} ALIGN_HOOKS_WEIGHTS={first} on both sides",
        "forward",
        ("not stored",),
    ),
    Advice(
        Verdict.DIVERGED,
        "look at what each side divides its loss by: the factor above says how they differ",
        "loss normalisation",
        ("told",),
    ),
    Advice(Verdict.DIVERGED, "train both with one micro-batch a rank, or with a per-token loss on both", "loss normalisation"),
    Advice(Verdict.DIVERGED, "record the candidate on one rank: " + FED, "reduced gradients", ("fed", "sharded")),
    Advice(Verdict.DIVERGED, "narrow it down by measured limits: " + NOISE, "reduced gradients", ("fed", "not measured")),
    *(
        Advice(
            Verdict.DIVERGED,
            "let the candidate make its first updates from the reference's gradients: ALIGN_HOOKS_INJECT_GRADIENTS={reference}@{updates} "
            "ALIGN_HOOKS_GRADIENTS={updates} ALIGN_HOOKS_WEIGHTS={states} ALIGN_HOOKS_OPTIMIZER_STATE={states} " + FED,
            place,
            ("fed", "gradients", "not injected"),
        )
        for place in ("clipping", "optimizer", "next loss", "curve")
    ),
    *(
        Advice(
            Verdict.DIVERGED,
            "store the first updates of the reference, whose gradients the candidate can then be handed: ALIGN_HOOKS_BATCHES=all "
            "ALIGN_HOOKS_GRADIENTS={updates} ALIGN_HOOKS_WEIGHTS={states} ALIGN_HOOKS_OPTIMIZER_STATE={states} <the reference's command>",
            place,
            ("not injected",),
        )
        for place in ("clipping", "optimizer", "next loss", "curve")
    ),
    Advice(Verdict.DIVERGED, "hold the record against the framework's own norm: read the self-check's lines above", "self-check"),
    Advice(Verdict.DIVERGED, "mend {suspect} and record the candidate again: " + FED, "", ("fed",)),
    Advice(Verdict.DIVERGED, STORE),
    Advice(Verdict.INCONCLUSIVE, "set {setting} alike on both sides and record the candidate again", "", ("settings",)),
    Advice(Verdict.INCONCLUSIVE, "rehearse in fp32, where bugs and rounding are a factor of a hundred apart", "", ("measured", "half")),
    Advice(Verdict.INCONCLUSIVE, "measure the noise: " + NOISE, "", ("fed", "not measured")),
    Advice(
        Verdict.INCONCLUSIVE, "measure more noise: one repeat more, with ALIGN_HOOKS_PERTURB=2, and --noise for each", "", ("measured",)
    ),
    Advice(Verdict.INCONCLUSIVE, "set {setting} alike on both sides; then " + LOGS, "", ("logs", "rates")),
    Advice(Verdict.INCONCLUSIVE, LOGS, "", ("logs",)),
    Advice(Verdict.INCONCLUSIVE, STORE),
    Advice(
        Verdict.NOT_COMPARABLE,
        "set {setting} alike on both sides and record the candidate again",
        "",
        ("padding", "settings", "not other rows"),
    ),
    Advice(
        Verdict.NOT_COMPARABLE, "see why it ended, in its own log and in align-hooks show {broken}, and record it again", "", ("nothing",)
    ),
    Advice(
        Verdict.NOT_COMPARABLE,
        "give the candidate the reference's {rows} rows of the embedding, {setting_of_rows}, and record it again",
        "",
        ("other rows",),
    ),
    Advice(
        Verdict.NOT_COMPARABLE,
        "give both models the same sizes; which settings differ says align-hooks check {reference} {candidate}",
        "",
        ("another model",),
    ),
    Advice(Verdict.NOT_COMPARABLE, "record the candidate from the reference: " + FED, "", ("fed",)),
    Advice(Verdict.NOT_COMPARABLE, STORE),
    Advice(Verdict.ALIGNED, "name two runs: align-hooks compare {reference} CANDIDATE", "", ("itself",)),
    Advice(Verdict.ALIGNED, "record more than losses: ALIGN_HOOKS_LOCAL_NORMS=all ALIGN_HOOKS_SKETCHES=all on both sides", "", ("bare",)),
    Advice(Verdict.ALIGNED, "the same in the precision that you train in", "", ("not half",)),
    Advice(Verdict.ALIGNED, "the same on the layout, and for the number of steps, that you train with"),
)


def about(ladder: Ladder, stages: Sequence[Stage], blamed: Blame | None) -> tuple[dict[str, bool], dict[str, str]]:
    """What is known of a comparison that advice depends on, and the words to fill in."""
    reference, candidate = ladder.pair.both
    settings = candidate.manifest.get("settings") or {}
    suspects = blamed.suspects[:1] if blamed else ()
    rates = differing(stages, "hyper-parameters")
    padding = any(stage.reason is Reason.OTHER_PADDING for stage in stages)
    first, rows = ladder.pair.first or 0, [run.manifest.get("padded_vocabulary") for run in (reference, candidate)]
    checkpoint = f"step_{first}/rank_0/weights"
    compared = {stage.name for stage in stages if stage.status is not Status.NOT_COMPARED}
    facts = {
        "measured": bool(ladder.noise.repeats),
        "settings": bool(ladder.settings),
        "itself": ladder.pair.is_itself,
        "rates": bool(rates),
        "resumed": first > 0,
        "padding": padding,
        "logs": bool(ladder.pair.converted),
        "one rank": ladder.parted.rows.rows is Rows.RANK,
        "replayed": bool(settings.get("replay_batches")),
        "loaded": bool(settings.get("load_weights")),
        "injected": bool(settings.get("inject_gradients")),
        "half": "bfloat16" in ladder.pair.compute_types or "float16" in ladder.pair.compute_types,
        "sharded": candidate.world_size > 1,
        "stored": first in ladder.pair.steps("weights") and first in ladder.pair.steps("gradients"),
        "fed": first in reference.batch_steps() and first in reference.weight_steps(),
        "gradients": first in reference.gradient_steps(),
        "checkpoint": (reference.path / checkpoint / "config.json").is_file(),
        "told": any(stage.told and stage.status is Status.DIFFERENT for stage in stages),
        "nothing": not (reference.steps and candidate.steps),
        "other rows": padding and None not in rows and rows[0] != rows[1],
        "another model": any(stage.reason is Reason.OTHER_MODEL for stage in stages),
        "bare": not compared & {"local norms", "gradients"},
    }
    paths = {
        "reference": reference.path,
        "candidate": candidate.path,
        "noise": f"{reference.path}_noise",
        "again": f"{candidate.path}_again",
        "broken": candidate.path if reference.steps else reference.path,
    }
    words = {name: shlex.quote(str(path)) for name, path in paths.items()}
    words |= {"weights": str(reference.path / checkpoint), "first": str(first)}
    words |= {"updates": f"{first}-{first + 2}", "states": f"{first}-{first + 3}"}
    words |= {"suspect": _named(suspects[0], stages) if suspects else "what differs"}
    words |= {"rows": str(rows[0]), "setting_of_rows": SETTING_OF_ROWS.get(str(candidate.manifest.get("side")), "").format(rows=rows[0])}
    words |= {"setting": in_a_row(list(dict.fromkeys(one.name for one in (*ladder.settings, *rates))))}
    return facts, words


def in_a_row(names: Sequence[str]) -> str:
    """Names as a sentence has them: ``a, b and c``."""
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def _named(suspect: str, stages: Sequence[Stage]) -> str:
    """A suspect as advice names it: the tensor, array or setting; what several have in common is no name."""
    names = {finding.what: finding.name for stage in stages for finding in stage.findings}
    if suspect not in (*names, *names.values()):
        return "what differs"
    return names.get(suspect) or suspect.partition(" at step ")[0].partition(" of step ")[0].partition(": ")[0]


def next_step(verdict: Verdict, place: str, facts: Mapping[str, bool], words: Mapping[str, str]) -> str:
    """The first row of :data:`ADVICE` that fits, with ``words`` (paths, suspects) filled in."""
    for one in ADVICE:
        fits = all(facts[fact.removeprefix("not ")] is not fact.startswith("not ") for fact in one.given)
        if one.verdict is verdict and one.place in ("", place) and fits:
            return one.what.format(**words)
    raise LookupError(f"no advice for {verdict}")
