"""The zoo's cases are whole, and the docs show its results."""

import ast
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from chosen import in_one
from zoo import altered
from zoo.case import MEGATRON, MINDFORMERS, Case
from zoo.cases import CASES, FAULTS, HONEST, REFERENCES
from zoo.grade import rates
from zoo.points import POINTS
from zoo.run import script
from zoo.table import PRECISIONS, depth, families, followed, opinions, pages, points, read, table

ZOO = Path(__file__).parent / "zoo"
DOCS = Path(__file__).parents[1] / "docs"


def named(script: str) -> set[str]:
    """The functions of a script, and the keys of its tables."""
    body = ast.parse((ZOO / script).read_text()).body
    tables = [node for part in body if isinstance(part, ast.Expr) for node in ast.walk(part) if isinstance(node, ast.Dict)]
    functions = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    return functions | {ast.literal_eval(key) for table in tables for key in table.keys}


PLANTS = {path.name: named(path.name) for path in ZOO.glob("planted_*.py")}


def test_there_are_enough_of_them_and_names_are_unique() -> None:
    assert len(FAULTS) >= 40
    assert len(HONEST) >= 10
    assert len(CASES) == len(FAULTS) + len(HONEST)
    assert {case.side for case in FAULTS} == {MEGATRON, MINDFORMERS}
    assert {script(case).name for case in FAULTS if case.plant} == PLANTS.keys()


@in_one(CASES.values())
def test_a_case_is_whole(case: Case) -> None:
    assert case.plant in PLANTS[script(case).name] if case.plant else not case.script
    assert case.reference in REFERENCES
    assert not case.batches or case.batches in altered.BATCHES
    assert case.weights in ("", "none", *altered.WEIGHTS)
    assert bool(case.culprit) == bool(case.stage) == (case in FAULTS)
    assert not (case.change if case.side == MEGATRON else case.flags)
    assert case.side == MEGATRON or case.earlier is None


@pytest.mark.parametrize("precision", PRECISIONS)
def test_every_case_has_a_result(precision: str) -> None:
    assert [row["measured"].name for row in read(precision)] == [case.name for case in CASES.values() if case.is_in(precision)]
    assert all(row["measured"].expected == CASES[row["measured"].name].stage for row in read(precision))


@pytest.mark.parametrize(
    ("page", "made"),
    [*(("zoo.md", made) for made in (table, families, followed, points, depth)), ("arbitrate.md", opinions), ("report.md", pages)],
)
def test_the_docs_show_the_results(page: str, made: Callable[[], str]) -> None:
    command = "table.py" if made is table else f"table.py {made.__name__}"
    assert (DOCS / page).read_text().partition(f"<!-- python tests/zoo/{command} -->\n")[2].partition("<!-- end -->")[0] == made()


def test_every_fault_of_a_forward_pass_comes_about_at_a_point() -> None:
    """What has no point is behind the backward pass, or before the forward pass."""
    assert set(POINTS) <= set(CASES)
    assert [case.name for case in FAULTS if case.stage == "forward" and case.name not in POINTS] == []
    assert not any(CASES[name].stage in ("", "weights", "optimizer", "clipping", "configuration") for name in POINTS)


def test_what_the_docs_say_of_pages_is_what_was_found() -> None:
    places = json.loads((ZOO / "results" / "pages.json").read_text())
    assert [one["name"] for one in places] == [case.name for case in FAULTS if case.is_in("float32")]
    first = sum(one["scrolls"] == 0 for one in places)
    assert f"on its first screen for {first} of the {len(places)} planted faults" in (DOCS / "index.md").read_text()
    assert f"{len(places)}处植入的偏差中，{first}处的原因" in (DOCS / "index.zh-CN.md").read_text()


def test_what_the_docs_say_is_what_was_found() -> None:
    found, guide, sketched = (rates([row[way] for row in read("float32")]) for way in ("measured", "guide", "sketches"))
    half = rates([row["measured"] for row in read("bfloat16")])
    found_all = (
        f"Of {found['faults']} misalignments planted on real runs, one at a time, {found['detected']} are flagged",
        f"{found['placed']} on the right stage, {found['culprit']} with the culprit",
        f"of {found['honest']} honest differences none is. The guide's acceptance standard sees {guide['detected']}.",
    )
    found_all_zh = (
        f"共{found['faults']}处，全部检出，{found['placed']}处阶段判断正确，{found['culprit']}处在前三个怀疑对象中点出了原因",
        f"{found['honest']}种正常差异没有一种误报。 指南的精度标准只能看出{guide['detected']}处。",
    )
    said = {
        "README.md": found_all,
        "README.zh-CN.md": found_all_zh,
        "docs/index.md": (
            *found_all,
            f"sketches: {sketched['detected']}, {sketched['placed']} on the right stage, {sketched['culprit']} named",
            f"{half['detected']} of {half['faults']}, {half['placed']} and {half['culprit']}, none of {half['honest']} honest ones",
        ),
        "docs/index.zh-CN.md": (
            *found_all_zh,
            f"检出{sketched['detected']}处，阶段正确{sketched['placed']}处，点出原因{sketched['culprit']}处",
            f"{half['faults']}处中检出{half['detected']}处，阶段正确{half['placed']}处，点出原因{half['culprit']}处，{half['honest']}种正常",
        ),
        "docs/guide.md": (f"of {guide['faults']} faults planted one at a time it sees {guide['detected']} (",),
        "docs/guide.zh-CN.md": (f"逐一植入的{guide['faults']}处偏差，它能看出{guide['detected']}处",),
    }
    for page, sentences in said.items():
        text = " ".join((DOCS.parent / page).read_text().split())
        assert [sentence for sentence in sentences if sentence not in text] == []
    assert found["detected"] == found["faults"]
    assert (found["flagged"], half["flagged"]) == (0, 0)
