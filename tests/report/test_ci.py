"""What continuous integration is given of a comparison: JUnit XML and Markdown."""

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from msgspec.structs import replace

from align_hooks import open_run
from align_hooks.comparison.control_band.signed_drift import SignedDrift, drifts
from align_hooks.comparison.finding import Metric
from align_hooks.comparison.pipeline import compare
from align_hooks.comparison.stage_result import StageResult, Status
from align_hooks.comparison.verdict import ComparisonResult, Verdict, decide
from align_hooks.messages import message, rendered
from align_hooks.report.comparison import document
from align_hooks.report.junit import KINDS, junit
from align_hooks.report.markdown import escaped, markdown
from golden.write import COMMAND, DRIFTS, comparisons, other_forward
from invoked import command
from synthetic import Synthetic, scalars_only

SCHEMA = {
    "testsuites": ("name tests failures errors time", "testsuite"),
    "testsuite": ("name tests failures errors skipped time", "properties testcase"),
    "properties": ("", "property"),
    "property": ("name value", ""),
    "testcase": ("classname name time", "failure error skipped"),
    "failure": ("type message", ""),
    "error": ("type message", ""),
    "skipped": ("message", ""),
}
"""The elements, what each has, and what may stand in it: a part of what the schema of Jenkins' xunit plugin allows, all of which GitHub's
and GitLab's readers know too."""


@pytest.fixture(scope="module")
def made() -> dict[str, ComparisonResult]:
    """Comparisons of every kind, and one of scalars alone."""
    return comparisons()


def cases(comparison: ComparisonResult) -> dict[str, ElementTree.Element]:
    """The cases of a comparison's JUnit by name."""
    root = ElementTree.fromstring(junit(comparison, COMMAND))
    for element in root.iter():
        attributes, below = (set(names.split()) for names in SCHEMA[element.tag])
        assert set(element.attrib) == attributes
        assert {child.tag for child in element} <= below
    (suite,) = root
    found = {case.attrib["name"]: case for case in suite.findall("testcase")}
    counts = {kind: sum(case.find(kind) is not None for case in found.values()) for kind in ("failure", "error", "skipped")}
    assert len(found) == len(suite.findall("testcase")) == int(suite.attrib["tests"]) == int(root.attrib["tests"])
    for element in (root, suite):
        assert (int(element.attrib["failures"]), int(element.attrib["errors"])) == (counts["failure"], counts["error"])
    assert int(suite.attrib["skipped"]) == counts["skipped"]
    return found


def test_a_case_is_a_stage_and_all_pass_where_runs_are_aligned(made: dict[str, ComparisonResult]) -> None:
    for comparison in made.values():
        found = cases(comparison)
        assert list(found) == ["verdict", *(result.name for result in comparison.stages)]
        bad = [name for name, case in found.items() if case.find("failure") is not None or case.find("error") is not None]
        assert (bad == []) == (comparison.verdict is Verdict.ALIGNED)
        for result in comparison.stages:
            expected = [KINDS[result.status]] if result.status in KINDS else []
            assert [child.tag for child in found[result.name]] == expected


def test_a_failure_can_be_read_alone(made: dict[str, ComparisonResult]) -> None:
    comparison = made["another forward pass, noise measured"]
    found = cases(comparison)
    failure, verdict = found["local norms"].find("failure"), found["verdict"].find("failure")
    assert failure is not None and verdict is not None and failure.text and verdict.text
    assert failure.attrib["type"] == Status.DIFFERENT.value
    result = next(result for result in comparison.stages if result.name == "local norms")
    assert failure.attrib["message"] == rendered(result.summary)
    assert result.findings[0].name in failure.text
    assert COMMAND in verdict.text and rendered(comparison.verdict) in verdict.attrib["message"]


def test_nothing_compared_passes_nowhere(made: dict[str, ComparisonResult]) -> None:
    """The stage that then decides is none of those that were come to."""
    stages = [replace(result, status=Status.NOT_COMPARED, findings=()) for result in made["aligned"].stages]
    verdict, first = decide(stages, None, 0)
    case = cases(replace(made["aligned"], verdict=verdict, first=first, stages=tuple(stages)))["verdict"]
    assert case.find("error") is not None


def test_text_of_a_record_is_neither_markup_nor_a_control_sequence(made: dict[str, ComparisonResult]) -> None:
    evil = message("terminal.setting", name="<b>&\x1b[2J]]>\x00", values="@everyone #12 `x` | _a_ *b* [c](d) a_b")
    stage = StageResult(made["aligned"].stages[0].stage, Status.DIFFERENT, evil)
    comparison = replace(made["another optimizer"], first=stage, stages=(stage,))
    failure = cases(comparison)["match"].find("failure")
    assert failure is not None
    assert failure.attrib["message"].startswith("<b>&\\x1b[2J]]>\\x00 ") and "@everyone #12" in failure.attrib["message"]
    text = markdown(document(comparison, drifts=DRIFTS, command=COMMAND))
    row = next(line for line in text.splitlines() if line.startswith("| match"))
    assert len(re.findall(r"(?<!\\)\|", row)) == 5
    assert "<b>" not in text.replace("\\<b", "") and "@everyone" not in text and "#12" not in text
    assert "\x1b" not in text and "\x00" not in text


@pytest.mark.parametrize(("text", "expected"), [("a_b", "a_b"), ("_a_", "\\_a\\_"), ("a|b", "a\\|b"), ("1 < 2 & 3", "1 \\< 2 &amp; 3")])
def test_what_needs_no_escape_has_none(text: str, expected: str) -> None:
    assert escaped(text) == expected


def test_markdown_is_short_whatever_there_is(made: dict[str, ComparisonResult]) -> None:
    many = [SignedDrift(Metric.LOCAL_NORMS, index * 1e-7, 1e-6, 3, 3, f"kind_{index}") for index in range(100)]
    for comparison in made.values():
        text = markdown(document(comparison, drifts=[*DRIFTS, *many], command=COMMAND))
        assert text.count("\n") < 60
        assert text.startswith("### ") and text.endswith("\n")
        assert [line for line in text.splitlines() if len(line) > 1100] == []
    assert "kind_99" in text and "kind_1 " not in text


def test_numbers_drift_to_a_side(tmp_path: Path) -> None:
    reference, candidate = Synthetic(), Synthetic()
    for step, (ours, theirs) in enumerate(zip(reference.rows, candidate.rows, strict=True)):
        theirs["loss"] = ours["loss"] * (1 + (-1) ** step * 1e-3)
        theirs["grad_norm"] = ours["grad_norm"] * 1.01
    for norms in candidate.norms.values():
        norms["model.layers.0.self_attn.q_proj.weight"] *= 0.99**2
    runs = [open_run(run.write(tmp_path / name)) for name, run in (("a", reference), ("b", candidate))]
    found = {drift.kind or drift.quantity.value: drift for drift in drifts(runs[0], runs[1], 1e-7)}
    assert found["losses"].mean == pytest.approx(1e-3 / 3, rel=1e-6)
    assert abs(found["losses"].largest) == pytest.approx(1e-3)
    assert found["grad_norm"].mean == pytest.approx(0.01)
    assert found["self_attn.q_proj"].mean == pytest.approx(-0.01)
    assert (found["self_attn.q_proj"].count, found["self_attn.q_proj"].steps) == (3, 3)
    assert found["lm_head"].mean == 0.0


def test_runs_without_norms_or_losses_have_no_drift_of_them(tmp_path: Path) -> None:
    run = open_run(scalars_only((None, None)).write(tmp_path / "run"))
    assert [drift.quantity for drift in drifts(run, run, 1e-7)] == [Metric.GRAD_NORM]


def test_the_options_write_the_files(tmp_path: Path) -> None:
    run = Synthetic()
    reference, candidate = (made.write(tmp_path / name) for name, made in (("a", run), ("b", other_forward(run))))
    done = command("compare", reference, candidate, "--junit", tmp_path / "c.xml", "--markdown", tmp_path / "c.md")
    assert (done.returncode, done.stdout.count("written: ")) == (1, 2)
    runs = open_run(reference), open_run(candidate)
    comparison, line = compare(*runs), f"align-hooks compare {reference} {candidate}"
    assert (tmp_path / "c.xml").read_text(encoding="utf-8") == junit(comparison, line)
    made = document(comparison, drifts=drifts(*runs, comparison.eps), command=line)
    assert (tmp_path / "c.md").read_text(encoding="utf-8") == markdown(made)


@pytest.mark.parametrize("pair", [("--junit", "--json"), ("--markdown", "--junit"), ("--html", "--markdown")])
def test_one_file_is_not_two_reports(pair: tuple[str, str], tmp_path: Path) -> None:
    run, file = Synthetic().write(tmp_path / "run"), tmp_path / "out"
    done = command("compare", run, run, pair[0], file, pair[1], file)
    assert done.returncode == 2
    assert "name the same file" in done.stderr and done.stderr.count("\n") == 1
