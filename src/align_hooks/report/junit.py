"""A comparison as JUnit XML, which GitHub, GitLab and Jenkins show beside the tests: a test case a stage, and one for the verdict.

All cases pass exactly where the verdict is *aligned*. A stage that differs or is inconclusive is a failure, one that could not be compared
an error, one that was not compared is skipped. No case has a time: equal comparisons are equal files.
"""

from __future__ import annotations

from xml.etree import ElementTree

from align_hooks.comparison.stage_result import Status
from align_hooks.comparison.verdict import ComparisonResult, Verdict
from align_hooks.messages import rendered
from align_hooks.report.console import plain
from align_hooks.report.failure import failure
from align_hooks.report.findings import describe

SUITE, CLASS = "align-hooks compare", "align_hooks.compare"
KINDS = {
    Status.DIFFERENT: "failure",
    Status.INCONCLUSIVE: "failure",
    Status.NOT_COMPARABLE: "error",
    Status.INCOMPLETE: "error",
    Status.NOT_COMPARED: "skipped",
}
"""The element of a case that did not pass, by the stage's status."""
OF_VERDICT = {Verdict.DIVERGED: "failure", Verdict.INCONCLUSIVE: "failure", Verdict.NOT_COMPARABLE: "error"}
SHOWN = 10
"""The most findings of a stage in its test case."""


def junit(comparison: ComparisonResult, command: str) -> str:
    """Return the text of the file; ``command`` prints the report."""
    suite = ElementTree.Element("testsuite", name=SUITE)
    properties = ElementTree.SubElement(suite, "properties")
    for name, value in (("verdict", comparison.verdict.text), ("command", command)):
        ElementTree.SubElement(properties, "property", name=name, value=plain(value))
    text = failure(comparison, [Verdict.ALIGNED], command, None)
    _case(suite, "verdict", OF_VERDICT.get(comparison.verdict, ""), comparison.verdict.text, text.splitlines()[0], text)
    for result in comparison.stages:
        summary = plain(rendered(result.summary))
        wrong = [plain(rendered(describe(finding))) for finding in result.beyond[:SHOWN]]
        _case(suite, result.name, KINDS.get(result.status, ""), result.status.value, summary, "\n".join([summary, *wrong]))
    suites = ElementTree.Element("testsuites", name=SUITE)
    for element in (suites, suite):
        cases = suite.findall("testcase")
        element.set("tests", str(len(cases)))
        for attribute, kind in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
            if element is suite or kind != "skipped":
                element.set(attribute, str(sum(case.find(kind) is not None for case in cases)))
        element.set("time", "0")
    suites.append(suite)
    ElementTree.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(suites, encoding="unicode") + "\n"


def _case(suite: ElementTree.Element, name: str, kind: str, type_: str, message: str, text: str) -> None:
    """Add a test case, passed where ``kind`` is empty; a skipped one has a message but no text."""
    case = ElementTree.SubElement(suite, "testcase", classname=CLASS, name=name, time="0")
    if kind == "skipped":
        ElementTree.SubElement(case, kind, message=message)
    elif kind:
        ElementTree.SubElement(case, kind, type=type_, message=message).text = text
