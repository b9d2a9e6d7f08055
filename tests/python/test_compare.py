"""``align_hooks.compare``: what it takes, and what a Comparison gives."""

import builtins
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from html.parser import HTMLParser
from pathlib import Path
from textwrap import dedent

import pytest

import align_hooks
from align_hooks import Comparison, Verdict, compare, open_run
from align_hooks.comparison import pipeline, verdict
from align_hooks.errors import AlignHooksError, RecordError
from align_hooks.extras import installing
from align_hooks.messages import rendered, with_commands
from align_hooks.report.json import as_json
from golden.write import other_forward
from invoked import command
from synthetic import NAMES, Synthetic, grown


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    here, run = tmp_path_factory.mktemp("compare"), Synthetic()
    for name, each in {"reference": run, "honest": run.drifted(), "noise": run.drifted(1e-5), "faulty": other_forward(run)}.items():
        each.write(here / name)
    return here


@pytest.fixture(scope="module")
def faulty(here: Path) -> Comparison:
    return compare(here / "reference", here / "faulty")


def test_it_is_the_comparison_of_the_command(here: Path, faulty: Comparison) -> None:
    expected = pipeline.compare(open_run(here / "reference"), open_run(here / "faulty"))
    assert isinstance(faulty, verdict.ComparisonResult)
    assert as_json(faulty) == as_json(expected)
    assert (faulty.verdict, faulty.exit_code) == (Verdict.DIVERGED, 1)


def test_a_run_may_be_a_text_a_path_or_open(here: Path) -> None:
    run, reference = open_run(here / "honest"), here / "reference"
    assert {compare(place, run).verdict for place in (str(reference), reference, open_run(reference))} == {Verdict.ALIGNED}
    assert compare(reference, run).candidate is run


def test_one_repeat_and_one_pattern_need_no_list(here: Path, tmp_path: Path) -> None:
    measured = [compare(here / "reference", here / "honest", noise=noise) for noise in (here / "noise", [str(here / "noise")])]
    assert measured[0].calibration == measured[1].calibration != {}
    more, fewer = (grown(dict.fromkeys(names, (2, 4))) for names in ([*NAMES, "model.layers.1.more"], NAMES))
    pair = more.write(tmp_path / "more"), fewer.write(tmp_path / "fewer")
    assert [bool(compare(*pair, allow_missing=allowed).stage("match").findings) for allowed in ((), "*.more")] == [True, False]


def test_who_reads_does_not_matter(here: Path, faulty: Comparison) -> None:
    with ThreadPoolExecutor(2) as pool:
        for executor in ("threads:2", pool):
            assert compare(here / "reference", here / "faulty", executor=executor).to_dict() == faulty.to_dict()


def test_what_cannot_be_read_is_an_error_and_what_cannot_be_compared_a_verdict(here: Path, tmp_path: Path) -> None:
    reference = here / "reference"
    with pytest.raises(RecordError, match="is not a directory"):
        compare(reference, tmp_path / "nowhere")
    (tmp_path / "a.log").write_text("iteration 1")
    with pytest.raises(RecordError, match=r"a.log is a file and no run; .*align-hooks convert \S+a.log \S+a.log_run makes one"):
        open_run(tmp_path / "a.log")
    with pytest.raises(RecordError, match=r"a.log holds no line of a step, neither Megatron-LM's"):  # which is opened as a log
        compare(reference, tmp_path / "a.log")
    with pytest.raises(AlignHooksError, match="--executor"):
        compare(reference, here / "honest", executor="horses")
    assert compare(reference, grown({"model.norm.weight": (4,)}).write(tmp_path / "other")).verdict is Verdict.NOT_COMPARABLE


def test_stages_and_findings(faulty: Comparison) -> None:
    assert faulty.first is faulty.stage("token losses") is faulty.stage("token_losses")
    assert faulty.findings[0] in faulty.stages[0].findings + faulty.stages[1].findings + faulty.findings[:1]
    assert len(faulty.findings) == sum(len(stage.findings) for stage in faulty.stages)
    with pytest.raises(AlignHooksError, match=r"'losses' is no stage; there are match, "):
        faulty.stage("losses")
    with pytest.raises(AlignHooksError, match=r"'routing' was not come to"):
        faulty.stage("routing")


def test_what_to_do_next_is_text(faulty: Comparison) -> None:
    assert str(faulty.next) == f"{faulty.next}" == "set rms_norm_eps alike on both sides, and record the candidate again"
    assert str(with_commands(faulty.next, "a command")).splitlines() == [str(faulty.next), "a command"]


def test_it_prints_as_the_console_does(here: Path, faulty: Comparison) -> None:
    printed = command("compare", here / "reference", here / "faulty").stdout
    assert str(faulty).splitlines() == [line.rstrip() for line in printed.rstrip().splitlines()]
    assert repr(faulty) == f"Comparison(diverged at 'token losses', {str(here / 'reference')!r}, {str(here / 'faulty')!r})"


class Text(HTMLParser):
    """The text of an HTML element, and the names of the elements in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.elements = "", set[str]()
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.elements.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_notebook_shows_the_same_and_a_record_says_no_markup(here: Path, faulty: Comparison, tmp_path: Path) -> None:
    shown = Text(faulty._repr_html_())
    assert [line.rstrip() for line in shown.text.rstrip().splitlines()] == str(faulty).splitlines()
    evil = Synthetic()
    evil.model |= {"<script>alert(1)</script>": 1}
    shown = Text(compare(here / "reference", evil.write(tmp_path / "evil"))._repr_html_())
    assert "<script>" in shown.text
    assert shown.elements == {"pre", "span"}


def test_in_a_notebook_nothing_is_shown_beside(faulty: Comparison, monkeypatch: pytest.MonkeyPatch) -> None:
    """rich knows a notebook by the name of the shell, and would hand what is printed to IPython, which is not here."""
    monkeypatch.setattr(builtins, "get_ipython", type("ZMQInteractiveShell", (), {}), raising=False)
    assert str(faulty) and faulty._repr_html_().startswith("<pre")


def test_a_frame_has_a_row_a_finding(faulty: Comparison) -> None:
    frame = faulty.to_frame()
    assert len(frame) == len(faulty.findings)
    assert list(frame.columns[:4]) == ["stage", "status", "quantity", "name"]
    worst, finding = frame[frame.stage == "token_losses"].iloc[0], faulty.stage("token_losses").findings[0]
    assert (worst.step, worst.error, worst.limit, worst.times_its_limit) == (0, finding.error, finding.limit, finding.limit_ratio)
    assert worst.what == rendered(finding.what)
    assert {"Int64", "float64", "object"} >= {str(kind).replace("str", "object") for kind in frame.dtypes}
    norm = frame[frame.stage == "local_norms"].set_index("name").reference[NAMES[0]]
    assert norm == pytest.approx(faulty.reference.local_norms(0)[NAMES[0]])


def test_a_finding_without_an_error_is_not_beyond_its_limit(here: Path, tmp_path: Path) -> None:
    frame = compare(here / "reference", grown({"model.norm.weight": (4,)}).write(tmp_path / "other")).to_frame()
    assert len(frame) > 0 and all(math.isnan(times) for times in frame.times_its_limit)
    assert frame.step.isna().all()


def test_agreement_without_findings_is_a_frame_too(here: Path) -> None:
    aligned = compare(here / "reference", here / "honest")
    assert aligned.first is None and aligned.blame is None
    assert set(aligned.to_frame().status) <= {"same"}


def test_the_page_and_the_dict_are_those_of_the_command(here: Path, faulty: Comparison, tmp_path: Path) -> None:
    faulty.write_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.startswith("<!doctype html>") and "rms_norm_eps" in page
    told = faulty.to_dict()
    assert (told["verdict"], told["reference"], told["align_hooks"]) == ("diverged", str(here / "reference"), align_hooks.__version__)


def python(code: str, *arguments: object) -> list[str]:
    """The lines that a process of Python prints."""
    line = [sys.executable, "-c", dedent(code), *map(str, arguments)]
    return subprocess.run(line, capture_output=True, text=True, timeout=120, check=True).stdout.splitlines()


def test_the_package_imports_numpy_and_pandas_only_when_asked() -> None:
    code = """
        import sys, align_hooks
        print(sorted({'numpy', 'pandas', 'msgspec', 'rich'} & set(sys.modules)))
        print([name for name in align_hooks.__all__ if name not in dir(align_hooks)])
        align_hooks.compare, align_hooks.Comparison, align_hooks.Verdict, align_hooks.Run, align_hooks.Batch, align_hooks.open_run
        print(sorted({'numpy', 'pandas', 'rich'} & set(sys.modules)))
    """
    assert python(code) == ["[]", "[]", "['numpy']"]


@pytest.mark.parametrize("command", ["env", "run"])
def test_a_command_that_reads_no_run_starts_without_numpy(command: str) -> None:
    assert python(f"import sys, align_hooks.cli.{command}; print('numpy' in sys.modules)") == ["False"]


MODULES = {"--help": 145, "env": 245, "check": 520, "show": 530, "compare": 700}
"""Most modules that a command of two small files, or of two records that differ, loads: imports are nearly all of its time."""


@pytest.mark.parametrize("command", MODULES)
def test_a_command_loads_what_it_uses(command: str, here: Path) -> None:
    launch = Path(__file__).parents[2] / "launch"
    given = {"check": [launch / "llama.args", launch / "llama.yaml"], "show": [here / "reference"]}
    given["compare"] = [here / "reference", here / "faulty"]
    code = """
        import contextlib, io, sys
        from align_hooks.cli import main
        sys.argv[0] = "align-hooks"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
            main()
        print(len(sys.modules))
    """
    (count,) = python(code, command, *given.get(command, ()))
    assert int(count) <= MODULES[command]


@pytest.mark.parametrize(("package", "use", "extra"), [("jinja2", "made.write_html('x')", "html"), ("pandas", "made.to_frame()", "pandas")])
@pytest.mark.slow
def test_an_extra_that_is_missing_is_named(here: Path, package: str, use: str, extra: str) -> None:
    code = f"""
        import sys; sys.modules[{package!r}] = None
        import align_hooks
        made = align_hooks.compare(*sys.argv[1:])
        try: {use}
        except align_hooks.errors.AlignHooksError as error: print(error)
    """
    (printed,) = python(code, here / "reference", here / "honest")
    assert f"needs {package}, which is not installed; {installing(extra)}" in printed
