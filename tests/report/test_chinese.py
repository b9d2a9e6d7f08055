"""Every sentence that a comparison can be made of has a Chinese text, and what is no sentence stays as it is."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from align_hooks import Run, open_run
from align_hooks.comparison.finding import Value
from align_hooks.comparison.findings import contradictions as findings_of
from align_hooks.comparison.health import health
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.verdict import ComparisonResult
from align_hooks.evidence.convert import convert
from align_hooks.messages import Side, message, rendered
from align_hooks.messages.catalogue import CHINESE
from align_hooks.record.check.contradictions import Contradiction, ContradictionKind, Statement, Witness
from align_hooks.record.check.norm_checks import NormRecheck, recomputed
from align_hooks.record.format.ending import HowEnded, InterruptedWrite
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.storage_limitations import NO_LINKS, NO_LOCKS, NO_SYNC
from align_hooks.record.inventory import inventory, not_whole
from align_hooks.record.read.problems import ProblemKind, distinct
from align_hooks.record.verify import summary, verify
from align_hooks.report.findings import shown
from align_hooks.report.run import headline
from chosen import every
from evidence.test_logs import megatron, mindformers
from rewritten import bend, edit, edit_rows
from sharded import Grid, Model, write
from synthetic import HONEST_SKETCHED, NAMES, Synthetic, by_hand, grown, row, scalars_only

TERMS = """
Adam AdamW Embedding MLP RoPE SGD CP Q K V dp tp True False None NaN nan inf fp32 float16 float32 bfloat16 base batch beta1 beta2 betas bias
checkpoint dropout eps epsilon gate head id iteration label labels local logits loss manifest micro-batch norm padding per-token rank
scale shape sketch smoothing softmax sqrt token tokens transformers type up z-loss
"""
"""What engineers write in English too, and values."""
VALUES = re.compile(
    r"ALIGN_HOOKS_\w+(=('[^']*'|\S+))?|align-hooks (?:compare|check).*|align-hooks show \S+|'[^']*'|(?<![A-Za-z])/[\w./@-]+|--[\w-]+"
    r"|[\w#]+(\.[\w#]+)+|\w*_\w+|(?<![A-Za-z0-9])[-+]?\d[\d.]*(e[-+]?\d+)?",
    re.ASCII,
)
"""Variables, commands, paths, options, names and numbers."""


def english(text: Value | Enum) -> list[str]:
    """The English words that are left in the Chinese of a text."""
    words = rendered(shown(text), CHINESE)
    return [word for word in re.findall(r"[A-Za-z][A-Za-z0-9-]*", VALUES.sub(" ", words)) if word not in TERMS.split()]


def words_left(contradictions: list[Contradiction]) -> list[str]:
    """The English words that are left in the Chinese of contradictions, as of one run and as of one side of two."""
    findings = [*findings_of(contradictions), *findings_of(contradictions, Side.CANDIDATE)]
    return [word for finding in findings for text in (finding.what, finding.reference, finding.candidate) for word in english(text)]


def texts_of(comparison: ComparisonResult) -> Iterator[Value]:
    """Every sentence of a comparison but its advice, which is a table of its own."""
    stages = [*comparison.stages, *filter(None, [comparison.first])]
    yield comparison.verdict
    for stage in stages:
        yield from (stage.title, stage.status, stage.summary, stage.common)
    for finding in (*comparison.settings, *(finding for stage in stages for finding in stage.findings)):
        yield from (finding.what, finding.reference, finding.candidate)
    yield from comparison.notes
    if comparison.blame:
        yield from (*(suspect.what for suspect in comparison.blame.suspects), *comparison.blame.likely)
    for criterion in comparison.acceptance:
        yield from (criterion.what, criterion.value)


def left(reference: Run, candidate: Run, *noise: Run) -> dict[Value, list[str]]:
    """The sentences of a comparison whose Chinese has English words left, with these."""
    return {text: words for text in texts_of(compare(reference, candidate, noise=noise)) if (words := english(text))}


# ---- what real records are told of


def cut(rows: Path, left: int) -> None:
    rows.write_text("".join(rows.read_text().splitlines(keepends=True)[:left]))


def ended(form: str | None, **slots: Any) -> Callable[[Synthetic], object]:
    return lambda run: setattr(run, "ended", form and HowEnded(form, **slots))


def as_it_is(unchanged: object) -> None:
    """Neither the run is bent nor its files are."""


Bend, Spoil = Callable[[Synthetic], object], Callable[[Path], object]
PROBLEMS: dict[str, tuple[Bend, Spoil]] = {
    "killed": (ended(None), as_it_is),
    "early": (ended("early", made=3, planned=5), as_it_is),
    "early, of unknown": (ended("early_of_unknown", made=3), as_it_is),
    "failed": (ended("failed"), as_it_is),
    "failed, with a code": (ended("failed_with_code", code=3), as_it_is),
    "failed, with an error": (ended("failed_with_error", error="OSError: 满"), as_it_is),
    "failed, no step": (ended("failed_with_code", code=3), lambda path: cut(path / "scalars" / "rank_0.jsonl", 0)),
    "interrupted": (ended("interrupted", step=3), as_it_is),
    "refused": (ended("refused", error="没有"), as_it_is),
    "stopped": (ended("stopped", step=2, what=InterruptedWrite.WEIGHTS.value, error="OSError: 满"), as_it_is),
    "gap": (lambda run: run.rows.pop(1), as_it_is),
    "no facts": (as_it_is, lambda path: (path / "run.json").unlink()),
    "cut": (as_it_is, lambda path: cut(path / "scalars" / "rank_0.jsonl", 2)),
    "lost, of one step": (as_it_is, lambda path: shutil.rmtree(path / "step_1/rank_0/weights")),
    "lost, of several": (as_it_is, lambda path: shutil.rmtree(path / "local_norms")),
    "nothing": (ended(None), lambda path: cut(path / "scalars" / "rank_0.jsonl", 0)),
}


@pytest.mark.parametrize(("bend", "spoil"), PROBLEMS.values(), ids=PROBLEMS.keys())
def test_problems_of_a_run(tmp_path: Path, bend: Bend, spoil: Spoil) -> None:
    run = Synthetic()
    bend(run)
    spoil(run.write(tmp_path / "run"))
    problems = open_run(tmp_path / "run").problems
    assert problems
    for problem in problems:
        assert set(english(problem.message)) - set(re.findall(r"[A-Za-z]+", problem.place)) <= {"OSError", "SIGINT"}
        of_side = message("notes.of_side", side=Side.REFERENCE, problem=problem.message)
        assert rendered(of_side, CHINESE) == f"标杆：{rendered(problem.message, CHINESE)}"


def test_a_rank_that_is_missing(tmp_path: Path) -> None:
    path = write(tmp_path / "run", Grid(dp=2), Model().tensors(1))
    (path / "manifest" / "rank_1.json").unlink()
    run = open_run(path)
    assert run.missing is not None and english(run.missing.message) == []
    assert left(run, run) == {}


WEAKER = [NO_LINKS, NO_SYNC, f"{NO_LOCKS}: OSError"]


@pytest.mark.parametrize("verified", [True, False])
@pytest.mark.parametrize("spoiled", [True, False])
def test_every_sentence_of_a_run_alone(tmp_path: Path, verified: bool, spoiled: bool) -> None:
    numbers = {"seconds": 0.5, "unrecorded_inputs": ["decoder_input"]}
    rows = [row(0, **numbers), row(1, loss=np.nan, **numbers), row(2, skipped=True, grad_norm=np.inf, **numbers)]
    path = Synthetic(rows=rows, batches={}).write(tmp_path / "run")
    if spoiled:
        (path / "step_1/rank_0/gradients.safetensors").write_bytes(b"")
    edit(path / "manifest" / "rank_0.json", storage_limitations=WEAKER)
    edit(path / "run.json", overrides=[{"what": "seed"}])
    run = open_run(path)
    checked = verify(run) if verified else None
    problems = distinct([*not_whole(run), *(checked.wrong if checked else ())])
    state = health(run, inventory(run), problems, summary(checked) if checked else None)
    sentences = [problem.message for problem in state.problems if problem.kind is not ProblemKind.UNREADABLE]
    sentences += [*state.remarks, state.checked, headline(state), *(rank.ended for rank in state.ranks), state.condition]
    assert ProblemKind.NOT_RECORDED in {problem.kind for problem in state.problems}
    ids = {remark.id for remark in state.remarks}
    assert ids >= {"health.not_finite", "health.skipped", "run.storage_limitations", "health.overrides", "health.seconds"}
    named = {"batches", "overrides", "OSError", "MB"}
    assert {rendered(text): words for text in sentences if (words := set(english(text)) - named)} == {}


def halved(rank: int, name: str, part: Any) -> Any:
    return part * np.float32(0.5) if (rank, name) == (1, "model.norm.weight") else part


DOWN = "model.layers.1.mlp.down_proj.weight"
FAULTS: dict[str, dict[str, Any]] = {
    "a copy that is none": {"bend": halved},
    "a shard that is lost": {"lose": lambda rank, shard: rank == 1 and shard.name == DOWN},
}


@pytest.mark.parametrize("planted", FAULTS.values(), ids=FAULTS.keys())
def test_contradictions_of_a_record(tmp_path: Path, planted: dict[str, Any]) -> None:
    contradictions = open_run(write(tmp_path / "run", Grid(tp=2), Model().tensors(1), **planted)).self_check.contradictions
    assert contradictions
    assert words_left(contradictions) == []


@pytest.mark.parametrize("per_token", [True, False])
@pytest.mark.parametrize(
    "shares", [[[20.0, 10, 20.0], [6.0, 2, 6.0]], [[20.0, 10, 1.0], [6.0, 2, 1.5]], [[20.0, 10, -20.0], [6.0, 2, 6.0]]]
)
def test_contradictions_of_weights_of_tokens(tmp_path: Path, per_token: bool, shares: list[list[Any]]) -> None:
    path = write(tmp_path / "run", Grid(), Model().tensors(1), micro_batches=shares)
    bend(path / "run.json", lambda facts: facts["training"].update(per_token_loss=per_token))
    assert words_left(open_run(path).self_check.contradictions) == []


def test_contradictions_of_norms(tmp_path: Path) -> None:
    contradictions = list(recomputed(0, [NormRecheck(1.0, 4.0, 1.0, 1, 1, (2.0,)), NormRecheck(1.0, 1.0, 1.0, 1, 2, ())]))
    path = write(tmp_path / "run", Grid(dp=2), Model().tensors(1))
    edit_rows(path / "scalars" / "rank_1.jsonl", grad_norm=3.25)
    contradictions += open_run(path).self_check.contradictions
    assert len(contradictions) == 4
    claims = Statement(Witness.COUNTED_GRADIENTS, 1.5), Statement(Witness.RECORDED_NORMS, 2.5)
    contradictions += [Contradiction(0, kind, *claims, name=DOWN, rank=1, place=0, count=2) for kind in ContradictionKind]
    assert words_left(contradictions) == []


# ---- whole comparisons


def changed(change: Callable[[Synthetic], Any], base: Synthetic | None = None) -> Synthetic:
    """An honest run that is changed."""
    run = (base or Synthetic()).drifted()
    change(run)
    return run


def bent(change: Callable[[Any], Any], *names: str) -> Synthetic:
    """An honest run some of whose first gradients are changed, or all."""
    run = Synthetic().drifted()
    for name in names or run.gradients[0]:
        run.gradients[0][name] = change(run.gradients[0][name]).astype(np.float32)
        run.norms[0][name] = squared_sum(run.gradients[0][name])
    return run


def another_weight(run: Synthetic, change: Callable[[Any], Any]) -> None:
    run.weights[0][NAMES[1]] = change(run.weights[0][NAMES[1]])


def other_groups(run: Synthetic) -> None:
    for group in run.optimizer["groups"]:
        group |= {"eps": 1e-6, "betas": [0.9, 0.999], "learning_rate": 2e-3, "weight_decay": 0.3}


def other_tokens(run: Synthetic) -> None:
    run.batches[0]["tokens"][0, 0] += 1
    del run.batches[1]["labels"]


def other_losses(run: Synthetic, first: int) -> None:
    run.batches[0]["token_losses"][:, first:] *= 1 + 1e-3 * np.arange(1, 6 - first, dtype=np.float32)


def one_row(run: Synthetic, step: int, *rows: int) -> None:
    run.batches[step]["token_losses"][list(rows or (1,))] *= np.float32(1.01)


RUNS: dict[str, Callable[[], Synthetic]] = {
    "honest": lambda: Synthetic().drifted(),
    "sketched": lambda: HONEST_SKETCHED.drifted(),
    "doubled": lambda: bent(lambda one: 2 * one),
    "noisy": lambda: bent(lambda one: one + 1e-3 * np.random.default_rng(0).standard_normal(one.shape)),
    "not finite": lambda: bent(lambda one: one * np.nan),
    "turned": lambda: changed(lambda run: another_weight(run, lambda one: -one)),
    "rolled": lambda: changed(lambda run: another_weight(run, lambda one: np.roll(one, 1, axis=0))),
    "rounded": lambda: changed(lambda run: another_weight(run, lambda one: one.astype(np.float16).astype(np.float32))),
    "not loaded": lambda: changed(lambda run: another_weight(run, np.ones_like)),
    "turned, by sketches": lambda: changed(lambda run: another_weight(run, lambda one: -one), HONEST_SKETCHED),
    "groups": lambda: changed(other_groups),
    "tokens": lambda: changed(other_tokens),
    "every token": lambda: changed(lambda run: other_losses(run, 0)),
    "scores": lambda: changed(lambda run: other_losses(run, 1)),
    "window": lambda: changed(lambda run: other_losses(run, 2)),
    "shifted": lambda: changed(lambda run: run.batches[0].update(token_losses=run.batches[0]["token_losses"] + np.float32(0.6931472))),
    "one row": lambda: changed(lambda run: one_row(run, 0)),
    "a later micro-batch": lambda: changed(lambda run: (one_row(run, 0, 2, 3), setattr(run, "micro_batches", [2, 2]))),
    "one micro-batch": lambda: changed(lambda run: (one_row(run, 0, 0, 1), setattr(run, "micro_batches", [2, 2]))),
    "unused rows": lambda: bent(lambda one: np.where(np.isin(np.arange(len(one)), (2, 3))[:, None], 0, one), NAMES[1]),
    "another random state": lambda: changed(lambda run: [row.update(random=[{"torch": str(row["step"])}]) for row in run.rows]),
    "an input": lambda: changed(lambda run: run.rows[0].update(unrecorded_inputs=["decoder_input"])),
    "a loss of its own": lambda: changed(lambda run: run.rows[0].update(loss=9.3)),
    "objective": lambda: changed(lambda run: run.rows[0].update(objective_loss=20.0)),
    "loss": lambda: changed(lambda run: run.rows[1].update(loss=9.9, objective_loss=9.9)),
    "skipped": lambda: changed(lambda run: run.rows[1].update(skipped=True)),
    "rate": lambda: changed(lambda run: [row.update(learning_rate=2e-3) for row in run.rows]),
    "settings": lambda: changed(lambda run: run.model.update(rms_norm_eps=1e-6)),
    "scalars": scalars_only,
    "no losses": lambda: scalars_only((None, None, None)),
    "shorter": lambda: changed(lambda run: run.rows.pop()),
    "never ended": lambda: changed(lambda run: setattr(run, "ended", None)),
    "later": lambda: Synthetic(rows=[row(step) for step in range(7, 10)], batches={}, weights={}, gradients={}, norms={}, moments={}),
    "another model": lambda: grown({NAMES[0]: (10, 4), NAMES[1]: (8, 4)}),
    "another type": lambda: changed(lambda run: setattr(run, "compute_type", "bfloat16")),
    "another optimizer": lambda: changed(lambda run: run.optimizer.update(type="SGD")),
}


@pytest.mark.parametrize("make", every(4, RUNS.values()), ids=RUNS.keys())
def test_every_sentence_of_a_comparison(tmp_path: Path, make: Callable[[], Synthetic]) -> None:
    reference, candidate = open_run(Synthetic().write(tmp_path / "reference")), open_run(make().write(tmp_path / "candidate"))
    repeat = open_run(Synthetic().drifted(size=1e-3).write(tmp_path / "repeat"))
    for runs in ((reference, candidate), (candidate, reference), (reference, candidate, repeat), (reference, repeat, candidate)):
        assert left(*runs) == {}


def test_every_sentence_of_a_comparison_with_what_was_made_by_hand_or_of_a_log(tmp_path: Path) -> None:
    for name, text in (("megatron", megatron()), ("mindformers", mindformers((9.1, 8.8, 8.6)))):
        (tmp_path / f"{name}.log").write_text(text)
        convert(tmp_path / f"{name}.log", tmp_path / name)
    recorded = open_run(Synthetic().write(tmp_path / "recorded"))
    by_megatron, by_mindformers = (open_run(tmp_path / name) for name in ("megatron", "mindformers"))
    made_by_hand = open_run(by_hand(tmp_path / "hand"))
    pairs = ((recorded, made_by_hand), (by_megatron, by_mindformers), (recorded, by_mindformers), (by_megatron, recorded))
    assert [left(*pair) for pair in pairs] == [{}] * 4
