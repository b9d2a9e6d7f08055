"""The tables of the docs, from the results of ``run.py``: ``python tests/zoo/table.py``."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.comparison.verdict import Verdict
from zoo.cases import CASES
from zoo.commits import CASES as CASES_OF_COMMITS
from zoo.gates import NAMES
from zoo.grade import OF_ADVICE, OF_COMMITS, UNTRAINED, WAYS, Grade, rates

PRECISIONS = ("float32", "bfloat16")
HEIGHT, OF_TELEPHONE = 900, 844
"""Of the windows that ``pages.py`` opens pages in, a laptop's and a telephone's."""

RESULTS = Path(__file__).parent / "results"


def read(precision: str) -> list[dict[str, Grade]]:
    """The grades of one precision, by way of judging."""
    rows = json.loads((RESULTS / f"{precision}.json").read_text())
    return [{way: grade_of(facts) for way, facts in row.items()} for row in rows]


def grade_of(facts: Mapping[str, Any]) -> Grade:
    """A grade as it was kept."""
    return Grade(**{**facts, "named": tuple(facts["named"])})


def head(*columns: str) -> list[str]:
    """The first lines of a table."""
    return [f"| {' | '.join(columns)} |", f"|{' --- |' * len(columns)}"]


FOUND = ("detected", "right stage", "right culprit", "honest pairs flagged")


def table() -> str:
    """How well each way does, then each case."""
    lines = head("computed in", "judged by", *FOUND)
    results = {precision: read(precision) for precision in PRECISIONS if (RESULTS / f"{precision}.json").exists()}
    for precision, rows in results.items():
        for way, description in WAYS.items():
            rate = rates([row[way] for row in rows])
            shown = [key for key in ("detected", "placed", "culprit") if way != "guide" or key == "detected"]
            numbers = [f"{rate[key]} of {rate['faults']}" for key in shown] + ["–"] * (3 - len(shown))
            lines.append(f"| {precision} | {description} | {' | '.join(numbers)} | {rate['flagged']} of {rate['honest']} |")
    for precision, rows in results.items():
        lines += ["", *head(precision, "kind", "must be blamed", "blamed", "named first", "sketches", "norms alone", "the guide")]
        lines += [line(row) for row in rows]
    return "\n".join(lines) + "\n"


def followed() -> str:
    """How the advice on every fault ended, where each printed command was run as it is pasted."""
    ends = ("names the cause", "narrows it", "says that it cannot", "misleads", "not seen at all")
    lines = head("computed in", "judged by", "faults", *ends)
    for path in sorted(RESULTS.glob("followed_*.json")):
        _, precision, way = path.stem.split("_")
        chains = json.loads(path.read_text(encoding="utf-8"))
        counts = [sum(chain["end"] == end for chain in chains) for end in ends]
        lines.append(f"| {precision} | {OF_ADVICE[way]} | {len(chains)} | {' | '.join(map(str, counts))} |")
    return "\n".join(lines) + "\n"


def families() -> str:
    """How well all that is recorded does on the models of each family, by measured limits."""
    lines, grades = head("model", *FOUND), [row["measured"] for row in read("float32")]
    for family in dict.fromkeys(CASES[grade.name].family for grade in grades):
        rate = rates([grade for grade in grades if CASES[grade.name].family == family])
        numbers = [f"{rate[key]} of {rate['faults']}" for key in ("detected", "placed", "culprit")]
        lines.append(f"| `{family}` | {' | '.join(numbers)} | {rate['flagged']} of {rate['honest']} |")
    return "\n".join(lines) + "\n"


def points() -> str:
    """Where a comparison says that an error comes about, of the faults that points can show."""
    lines = head("computed in", "judged by", "right point", "honest pairs flagged")
    results = {precision: read(precision) for precision in PRECISIONS if (RESULTS / f"{precision}.json").exists()}
    for precision, rows in results.items():
        for way in ("measured", "defaults"):
            rate = rates([row[way] for row in rows])
            right = f"{rate['pointed']} of {rate['points']}"
            lines.append(f"| {precision} | {WAYS[way]} | {right} | {rate['flagged']} of {rate['honest']} |")
    for precision, rows in results.items():
        lines += ["", *head(precision, "the error comes about at")]
        told = [row["measured"] for row in rows if row["measured"].pointed is not None]
        lines += [f"| {CASES[grade.name].title} | `{grade.point or 'no point'}`{'' if grade.pointed else ' **✗**'} |" for grade in told]
    return "\n".join(lines) + "\n"


def opinions() -> str:
    """What ``arbitrate`` says of the faults of a forward pass, and of honest pairs."""
    told = ("planted side named wrong", "honest pairs both right", "refused: dropped at random", "the furthest honest point")
    lines = head("computed in", *told)
    for precision in PRECISIONS:
        if not (kept := RESULTS / f"third_opinion_{precision}.json").exists():
            continue
        rows = json.loads(kept.read_text())
        faults, honest = ([row for row in rows if bool(row["expected"]) is fault] for fault in (True, False))
        wrong = sum(row["ruling"] == "candidate wrong" for row in faults)
        refused = sum(row["ruling"] == "refused" for row in honest)
        right = [row["limit_ratio"] for row in honest if row["ruling"] == "both right"]
        numbers = f"{wrong} of {len(faults)} | {len(right)} of {len(honest) - refused} | {refused}"
        lines.append(f"| {precision} | {numbers} | {max(right):.2f} of its limit |")
    return "\n".join(lines) + "\n"


def depth() -> str:
    """How rounding grows with depth."""
    gradients = "weights moved by one eps: gradients"
    lines = head("computed in", "layers", "token losses", "norms", "gradients", "updates", gradients)
    for row in json.loads((RESULTS / "depth.json").read_text()):
        numbers = [f"{row['honest'][kind]:.2g}" for kind in ("token_losses", "local_norms", "gradients", "updates")]
        lines.append(f"| {row['precision']} | {row['layers']} | {' | '.join(numbers)} | {row['moved']['gradients']:.2g} |")
    return "\n".join(lines) + "\n"


def line(row: dict[str, Grade]) -> str:
    """One case."""
    grade = row["measured"]
    blamed = grade.stage if grade.detected else grade.verdict
    named = ", ".join(f"`{name}`" for name in grade.named[:1]) if grade.detected else ""
    mark = "" if grade.good else " **✗**"
    others = " | ".join(how_far(row[way]) for way in ("sketches", "norms", "guide"))
    return f"| {CASES[grade.name].title} | {grade.kind} | {grade.expected or 'nothing'} | {blamed}{mark} | {named} | {others} |"


def how_far(grade: Grade) -> str:
    """How much of a case was seen, in a word."""
    if grade.honest:
        return "flagged" if grade.detected else ""
    if not grade.detected:
        return "not seen"
    return "named" if grade.good else "placed" if grade.placed and grade.stage else "flagged"


FIVE = ("keys_as_values", "rope_missing_on_keys", "loss_over_fewer_tokens", "decay_in_gradient", "labels_shifted")
"""Cases whose pages are told one by one: a conversion, the attention, the loss, the optimizer, the data."""


def pages() -> str:
    """Where on its page a culprit stands, for five cases and for all."""
    rows = {row["name"]: row for row in json.loads((RESULTS / "pages.json").read_text())}
    lines = head("planted", "the line that names it", "under", "ends at pixel", "scrolls, on a telephone")
    for name in FIVE:
        row = rows[name]
        scrolls = f"{row['scrolls']}, {row['on_telephone']}"
        lines.append(f"| {CASES[name].title} | {row['line']} | {row['within']} | {row['bottom']} of {HEIGHT} | {scrolls} |")
    first = sum(row["scrolls"] == 0 for row in rows.values())
    opened = [row for row in rows.values() if "on_telephone" in row]
    small = sum(row["on_telephone"] == 0 for row in opened)
    said = f"Of all {len(rows)} faults the culprit is named on the first screen in {first};\n"
    said += f"of the {len(opened)} whose pages were opened on a telephone too, on its first screen in {small}."
    return "\n".join([*lines, "", said]) + "\n"


def commits() -> str:
    """How well each way does on real faults, what other gates let through, and each pair."""
    kept = json.loads((RESULTS / "commits.json").read_text(encoding="utf-8"))
    rows = [{**row, "ways": {way: grade_of(facts) for way, facts in row["ways"].items()}} for row in kept]
    trained = [row for row in rows if not CASES_OF_COMMITS[row["name"]].why and row["ways"]["defaults"].verdict != UNTRAINED]
    lines = head("judged by", *FOUND)
    for way, description in OF_COMMITS.items():
        rate = rates([row["ways"][way] for row in trained])
        numbers = [f"{rate[key]} of {rate['faults']}" for key in ("detected", "placed", "culprit")]
        lines.append(f"| {description} | {' | '.join(numbers)} | {rate['flagged']} of {rate['honest']} |")
    lines += ["", *head("gate", "real faults that it lets through", "honest pairs that it refuses")]
    faults, honest = ([row for row in trained if row["ways"]["defaults"].honest is kind] for kind in (False, True))
    for name, description in NAMES.items():
        let, refused = ([row["gates"][name] for row in of_kind if row["gates"][name] is not None] for of_kind in (faults, honest))
        lines.append(f"| {description} | {let.count(True)} of {len(let)} | {refused.count(False)} of {len(refused)} |")
    let = [row["ways"]["defaults"].verdict == Verdict.ALIGNED.text for row in faults]
    flagged = [row["ways"]["defaults"].detected for row in honest]
    lines.append(f"| `compare`, everything recorded | {let.count(True)} of {len(let)} | {flagged.count(True)} of {len(flagged)} |")
    seconds = sorted(row["seconds"]["train"] + row["seconds"]["judge"] for row in trained)
    judged = sorted(row["seconds"]["judge"] for row in trained)
    middle, most = len(seconds) // 2, -1 - len(seconds) // 10
    said = f"From the two trees to the verdict a pair takes {seconds[middle]:.0f} seconds ({seconds[most]:.0f} in nine of ten),"
    lines += ["", said, f"of which the three comparisons take {judged[middle]:.1f} ({judged[most]:.1f})."]
    columns = (
        "commit",
        "what it mended",
        "must be blamed",
        "blamed",
        "at step",
        "named",
        "norms alone",
        "logs",
        "gates that let it through",
    )
    lines += ["", *head(*columns), *map(line_of_commit, rows)]
    return "\n".join(lines) + "\n"


def line_of_commit(row: Mapping[str, Any]) -> str:
    """One pair."""
    grade, case = row["ways"]["defaults"], CASES_OF_COMMITS[row["name"]]
    address = f"https://github.com/{case.repository}/commit/{case.commit}"
    commit = f"[`{case.commit[:8]}`]({address})" if case.commit else f"[open]({case.report})" if case.report else "a switch"
    if case.why or grade.verdict == UNTRAINED:
        return f"| {commit} | {case.title} | {grade.expected or 'nothing'} | not counted: {case.why or grade.note} | | | | | |"
    blamed = grade.stage if grade.detected else grade.verdict
    mark = "" if grade.good else " **✗**"
    named = ", ".join(grade.named[:1]) if grade.detected else ""
    passed = ", ".join(name for name, passes in row["gates"].items() if passes and not grade.honest)
    others = " | ".join(how_far(row["ways"][way]) for way in ("norms", "logs"))
    step = grade.step if grade.detected and grade.step is not None else ""
    return f"| {commit} | {case.title} | {grade.expected or 'nothing'} | {blamed}{mark} | {step} | {named} | {others} | {passed} |"


if __name__ == "__main__":
    tables = {made.__name__: made for made in (commits, families, followed, points, opinions, depth, pages)}
    print(tables[sys.argv[1]]() if sys.argv[1:] else table(), end="")
