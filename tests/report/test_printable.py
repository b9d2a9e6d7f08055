"""A name may hold any character: none of those that hide, turn or end text reaches a terminal, a page, markdown or JUnit as itself."""

import json
import re
import unicodedata
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks import open_run
from align_hooks.checklist.sides import check_runs
from align_hooks.comparison.health import health
from align_hooks.comparison.pipeline import compare
from align_hooks.errors import AlignHooksError, RecordError, printable, shown
from align_hooks.process import script
from align_hooks.record.inventory import inventory
from align_hooks.record.write.atomic import json_text
from align_hooks.report import comparison as comparison_report
from align_hooks.report import run as run_report
from align_hooks.report.comparison_page import comparison_page
from align_hooks.report.html import page
from align_hooks.report.json import as_json
from align_hooks.report.junit import junit
from align_hooks.report.markdown import markdown
from synthetic import Synthetic, tensors
from worded import on_terminal

KINDS = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
ODD = "".join(char for char in map(chr, range(0x110000)) if unicodedata.category(char) in KINDS and char not in "\n")
"""Controls, marks of direction and joining, surrogates, private characters, separators of lines."""
SOME = "\0\x07\x1b[31m\x7f\x85\x9b\u00ad\u061c\u200b\u200e\u2028\u2029\u202e\u2066\ufeff\ue000\U000e0041"
RAW = re.compile("[" + "".join(re.escape(char) for char in SOME if char not in "[31m") + "]")


def test_every_character_that_is_not_seen_is_shown_as_its_escape() -> None:
    assert set(printable(ODD)) <= set(map(chr, range(32, 127)))
    assert printable("é 模型 a.b") == "é 模型 a.b"


@given(st.text())
def test_what_is_shown_is_one_line_and_is_encodable(text: str) -> None:
    for made in (printable(text), shown(text)):
        assert made.isprintable()
        made.encode()


@pytest.mark.parametrize("error", [RecordError, AlignHooksError])
def test_a_line_break_of_a_name_begins_no_line_of_ours(error: type[AlignHooksError], capsys: pytest.CaptureFixture[str]) -> None:
    script.report(error(f"{Path('/dumps/a')}\nalign_hooks: aligned\u2028\x85\r{SOME} is no dump"))
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert said[:-1].isprintable()


def test_no_report_of_odd_names_holds_them_raw(tmp_path: Path) -> None:
    name = f"model.layers.0.{SOME}\r.weight"
    facts = {"framework": SOME, "versions": {SOME: SOME}, "notes": [SOME]}
    made = [
        Synthetic(
            model={"model_type": SOME, SOME: SOME},
            shapes={name: (2, 2)},
            weights={},
            gradients={step: tensors(seed + step, {name: (2, 2)}) for step in range(3)},
            facts=facts | {"arguments": {"num_layers": seed, "tokenizer_type": SOME, SOME: SOME}},
        )
        for seed in (0, 9)
    ]
    runs = [open_run(run.write(tmp_path / f"run{number}\u202e")) for number, run in enumerate(made)]
    comparison, state = compare(*runs), health(runs[0], inventory(runs[0]), [], None)
    reports = comparison_report.document(comparison), run_report.document(state)
    checked = check_runs(*runs, comparison.statistics)
    assert checked is not None
    command = f"align-hooks compare {SOME}"
    pages = comparison_page(comparison, "0", None), page(reports[1], "0")
    texts = [*(on_terminal(report, 200) for report in reports), *pages, markdown(reports[0]), junit(comparison, command)]
    ElementTree.fromstring(texts[-1])
    for text in texts:
        assert not RAW.findall(text), (RAW.findall(text), text[max(0, RAW.search(text).start() - 200) :][:300])  # type: ignore[union-attr]
    assert any(name in str(value) for value in walked(json.loads(json_text(as_json(comparison)))))


def walked(value: object) -> list[object]:
    if isinstance(value, dict):
        return [*value, *(inner for each in value.values() for inner in walked(each))]
    return [inner for each in value for inner in walked(each)] if isinstance(value, list) else [value]
