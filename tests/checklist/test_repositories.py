"""``check`` over every launch script and YAML file of public repositories: it answers, whatever stands in them.

CHECK_REPOSITORIES names checkouts, with colons between them; of each, a test counts how its files came out. ``python
tests/checklist/test_repositories.py`` prints the counts, and every answer that is none.
"""

import contextlib
import io
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parents[1]))

from align_hooks.__main__ import main
from checklist.exercises import EXPERTS, FLAGS, LATENT, MEGATRON, NEW, OLD, mindformers_tree
from work import at_most

CHECKOUTS = [Path(name) for name in os.environ.get("CHECK_REPOSITORIES", "").split(":") if name]
DOCUMENTED, ENDLESS = (0, 1, 2, 3, 4), -1
ENOUGH = 50_000_000
"""Calls that a check may make; the longest of these files take a tenth of it."""
OF_MEGATRON = re.compile(r"^MODEL_ARGS:", re.MULTILINE)
STYLES = {
    LATENT: re.compile(r"multi[-_]latent|multi-head-latent|deepseek_v3|DeepseekV[23]|kv[-_]lora", re.IGNORECASE),
    EXPERTS: re.compile(r"num[-_]experts|expert_num|n_routed_experts"),
    OLD: re.compile(r"LlamaConfig|use_legacy: *True", re.IGNORECASE),
}
"""What in a file tells which counterpart is sensible."""


@dataclass(frozen=True)
class Answer:
    """How a check of a file ended: the exit code, and what of its answer breaks the contract."""

    file: Path
    code: int
    faults: tuple[str, ...]


def counterpart(text: str, *, script: bool, folder: Path) -> Path:
    """The other side of a file, of the kind of model that the file tells."""
    style = next((style for style, pattern in STYLES.items() if pattern.search(text)), NEW)
    if not script:
        file = folder / f"{style}.yaml"
        file.write_text(yaml.safe_dump(mindformers_tree(style, {})))
        return file
    words = [f"--{name} {'' if value is None else value}" for name, value in {**MEGATRON, **FLAGS.get(style, {})}.items()]
    file = folder / f"{style}.sh"
    file.write_text("torchrun pretrain_gpt.py \\\n" + " \\\n".join(words) + "\n")
    return file


def answer(file: Path, folder: Path) -> Answer:
    """Check a file against its counterpart, with every report that ``check`` writes."""
    text = file.read_text(encoding="utf-8", errors="replace")
    of_mindformers = file.suffix in (".yaml", ".yml") and not OF_MEGATRON.search(text)
    other = counterpart(text, script=of_mindformers, folder=folder)
    pair = (other, file) if of_mindformers else (file, other)
    reports = {option: folder / f"report.{option}" for option in ("json", "html")}
    options = [word for option, report in reports.items() for word in (f"--{option}", str(report))]
    code, printed, said = in_process("check", *map(str, pair), "--all", *options)
    faults = []
    if code not in DOCUMENTED:
        faults.append(f"exit code {code}: {said.strip()}")
    elif code in (2, 3) and (said.count("\n") != 1 or printed):
        faults.append(f"more than one line: {said!r}")
    elif code not in (2, 3) and (said or not printed or not all(report.stat().st_size for report in reports.values())):
        faults.append(f"no whole report, or more than one: {said!r}")
    for report in reports.values():
        report.unlink(missing_ok=True)
    if code in (0, 1, 4):
        again, _, said = in_process("check", *map(str, pair), "--fix", str(folder / "fixed.yaml"))
        faults += [f"--fix ends in {again}: {said.strip()}"] if again != code and (again != 2 or said.count("\n") != 1) else []
    return Answer(file, code, tuple(faults))


def in_process(*arguments: str) -> tuple[int, str, str]:
    """What a command ends with, prints and says of errors."""
    before, (printed, said) = sys.argv, (io.StringIO(), io.StringIO())
    sys.argv = ["align-hooks", *arguments]
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(said), at_most(ENOUGH):
            main()
        return 0, printed.getvalue(), said.getvalue()
    except SystemExit as end:
        return int(end.code or 0), printed.getvalue(), said.getvalue()
    except pytest.fail.Exception as endless:
        return ENDLESS, "", f"{endless}\n"
    finally:
        sys.argv = before


def files(checkout: Path) -> Iterator[Path]:
    """Every launch script and YAML file of a checkout."""
    found = (path for path in sorted(checkout.rglob("*")) if path.suffix in (".sh", ".yaml", ".yml") and path.is_file())
    return (path for path in found if ".git" not in path.parts)


@pytest.mark.slow
@pytest.mark.skipif(not CHECKOUTS, reason="CHECK_REPOSITORIES names no checkouts")
@pytest.mark.parametrize("checkout", CHECKOUTS, ids=lambda path: path.name)
def test_every_file_is_answered(checkout: Path, tmp_path: Path) -> None:
    answers = [answer(file, tmp_path) for file in files(checkout)]
    assert answers, f"{checkout} holds no script and no YAML file"
    assert [f"{one.file}: {fault}" for one in answers for fault in one.faults] == []


if __name__ == "__main__":
    import tempfile

    for checkout in CHECKOUTS:
        with tempfile.TemporaryDirectory() as folder:
            answers = [answer(file, Path(folder)) for file in files(checkout)]
        print(checkout.name, len(answers), dict(sorted(Counter(one.code for one in answers).items())), flush=True)
        for one in answers:
            print(*(f"  {one.file}: {fault}" for fault in one.faults), sep="\n", end="\n" if one.faults else "", flush=True)
