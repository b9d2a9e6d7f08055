"""Who may import whom, read from the source and tried in a fresh interpreter."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

import align_hooks
from chosen import every

SOURCE = Path(align_hooks.__file__).parent
FRAMEWORKS = {"torch", "megatron", "mindspore", "mindformers", "transformers"}
SIDES = ("align_hooks.torch_side", "align_hooks.ms_side")
THIRD = "align_hooks.hf_side"
"""The room of Hugging Face's opinion, in which nothing trains."""


def modules() -> dict[str, Path]:
    """Module name to file, of the whole package."""
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = ("align_hooks", *path.relative_to(SOURCE).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()
PACKAGES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def imports(name: str) -> frozenset[str]:
    """Dotted names that a module imports anywhere in its text, inside functions and under TYPE_CHECKING too."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[name].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = name if name in PACKAGES else name.rpartition(".")[0]
            source = resolve_name("." * node.level + (node.module or ""), package) if node.level else str(node.module)
            found |= {source} | {f"{source}.{alias.name}" for alias in node.names}
    return frozenset(found)


def inside(name: str, *rooms: str) -> bool:
    return any(name == room or name.startswith(room + ".") for room in rooms)


def importers(*targets: str) -> set[str]:
    return {name for name in MODULES if any(inside(one, *targets) for one in imports(name))}


def ours(name: str) -> set[str]:
    return {one for one in imports(name) if inside(one, "align_hooks")}


def test_the_walk_sees_the_whole_package() -> None:
    assert {"align_hooks", "align_hooks.cli", "align_hooks.torch_side.hooks.train_step", "align_hooks.ms_side.hooks.training"} <= set(
        MODULES
    )
    assert "torch" in imports("align_hooks.torch_side.model")
    assert "mindspore" in imports("align_hooks.ms_side.model")


def test_only_the_torch_side_imports_megatron_and_only_the_third_opinion_torch_beside_it() -> None:
    assert [name for name in importers("megatron") if not inside(name, "align_hooks.torch_side")] == []
    assert [name for name in importers("torch") if not inside(name, "align_hooks.torch_side", THIRD)] == []


def test_only_the_third_opinion_imports_transformers_and_only_its_command_that_room() -> None:
    assert [name for name in importers("transformers") if not inside(name, THIRD)] == []
    assert {name for name in importers(THIRD) if not inside(name, THIRD)} == {"align_hooks.cli.arbitrate"}


def test_only_the_ms_side_imports_mindspore_and_mindformers() -> None:
    assert [name for name in importers("mindspore", "mindformers") if not inside(name, "align_hooks.ms_side")] == []


def test_only_hooking_imports_wrapt() -> None:
    assert {name for name in importers("wrapt") if not inside(name, "align_hooks.hooking")} == set()


def test_only_digests_are_made_with_xxhash() -> None:
    assert importers("xxhash") == {"align_hooks.record.digests"}


@pytest.mark.parametrize("side", SIDES)
def test_only_a_side_itself_imports_that_side(side: str) -> None:
    assert [name for name in importers(side) if not inside(name, side)] == []


FLOORS = (
    ("_version", "data_file"),
    ("errors", "messages", "quantities", "regular"),
    ("extras",),
    ("names", "process", "configuration"),
    ("families", "settings"),
    ("record",),
    ("replay", "hooking", "comparison", "checklist", "patched"),
    ("session", "checkpoints"),
    ("job", "evidence", "scenarios"),
    ("torch_side", "ms_side", "hf_side", "doctor"),
    ("report",),
    ("cli", "python"),
    ("testing",),
)
"""The rooms of the package, the lowest floor first. A room imports rooms of floors below its own, and none beside it."""
ROOMS = {room: floor for floor, rooms in enumerate(FLOORS) for room in rooms}
ENTRANCE = "__main__"
"""What ``python -m`` starts: it stands above all floors, in whatever room it lies, and no module imports it."""


@cache
def made_in(path: Path) -> frozenset[str]:
    """Every name that a file binds."""
    nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
    given = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    imported = {
        (alias.asname or alias.name).split(".")[0]
        for node in nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    return frozenset(given | imported | {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)})


def test_what_tools_take_of_a_module_of_the_tests_is_there() -> None:
    """Of those that no test runs too, such as the zoo's: a name that changed must not wait for the night in which they are run."""
    tests = Path(__file__).parent
    lost = []
    tools = [path for path in tests.rglob("*.py") if not path.name.startswith("test_")]
    for path in (*tools, *(tests.parent / "benchmarks").rglob("*.py")):
        nodes = [*ast.walk(ast.parse(path.read_text(encoding="utf-8")))]
        taken: list[tuple[Path, str]] = []
        files: dict[str, Path] = {}
        for node in nodes:
            for alias in node.names if isinstance(node, ast.ImportFrom) and node.module else ():
                source, inner = (tests / name.replace(".", "/") for name in (node.module, f"{node.module}.{alias.name}"))
                files |= {alias.asname or alias.name: inner.with_suffix(".py")} if inner.with_suffix(".py").exists() else {}
                taken += [(source.with_suffix(".py"), alias.name)] if source.with_suffix(".py").exists() else []
        uses = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
        taken += [(files[node.value.id], node.attr) for node in uses if node.value.id in files]
        lost += [(str(path), source.name, name) for source, name in taken if name not in made_in(source)]
    assert lost == []


def room_of(name: str) -> str:
    return name.split(".")[1]


def test_every_room_is_on_one_floor() -> None:
    rooms = {room_of(name) for name in MODULES if name not in ("align_hooks", f"align_hooks.{ENTRANCE}")}
    assert sorted(rooms) == sorted(room for floor in FLOORS for room in floor)


def test_rooms_import_only_what_stands_on_floors_below() -> None:
    inner = [name for name in MODULES if name != "align_hooks" and not name.endswith(ENTRANCE)]
    arrows = {(room_of(name), room_of(target), name) for name in inner for target in ours(name) if target != "align_hooks"}
    between = [(room, target, name) for room, target, name in sorted(arrows) if target in ROOMS and target != room]
    assert [(name, target) for room, target, name in between if ROOMS[target] >= ROOMS[room]] == []


def test_no_modules_import_each_other() -> None:
    """Under TYPE_CHECKING too: what must be read together is one module, or has a third below both."""
    TopologicalSorter({name: {target for target in ours(name) if target in MODULES} - {name} for name in MODULES}).prepare()


def test_nothing_imports_an_entrance() -> None:
    assert importers(*(name for name in MODULES if name.endswith(ENTRANCE))) == set()


READS = (
    *(
        "reader",
        "schema",
        "batch",
        "batch_digests",
        "shard",
        "tensors",
        "self_check",
        "holdings",
        "problems",
        "routing",
        "terms",
        "activations",
        "ending",
        "state",
        "look",
        "weighing",
    ),
    *("layout", "part"),  # for the type of an array, and the size of a block
)
"""What of a record its readers import: what a run is and what it gives, and nothing that writes one."""


def test_compare_knows_a_run_and_nothing_that_writes_one() -> None:
    rooms = [name for name in MODULES if inside(name, "align_hooks.comparison")]
    record, process = (f"record.{module}" for module in READS), ("process.work", "process.storage")
    below = (
        "comparison",
        "data_file",
        "extras",
        "messages",
        "families.registry",
        "names.blocks",
        "names.points",
        "quantities",
        "settings",
        *process,
        *record,
    )
    assert len(rooms) > 5
    assert [name for name in rooms if not all(inside(one, *(f"align_hooks.{room}" for room in below)) for one in ours(name))] == []
    assert [
        name for name in MODULES if inside(name, "align_hooks.record") for one in ours(name) if inside(one, "align_hooks.comparison")
    ] == []


def test_report_imports_only_what_is_reported() -> None:
    rooms = [name for name in MODULES if inside(name, "align_hooks.report")]
    compared, checked = (
        (
            "comparison.verdict",
            "comparison.stages",
            "comparison.health",
            "comparison.limits",
            "comparison.places",
            "comparison.settings",
            "comparison.arbitration",
        ),
        ("checklist.side_value", "checklist.change", "checklist.judge", "checklist.result", "checklist.row", "checklist.uncovered"),
    )
    data = (
        *compared,
        *checked,
        "comparison.band.watching",
        "comparison.shared_ids",
        "comparison.signed",
        "comparison.unmoved",
        "scenarios",
        "doctor.examination",
        "errors",
        "extras",
        "doctor.frameworks",
        "data_file",
        "record.holdings",
        "record.schema",
        "record.atomic",
        "record.layout",
        "messages",
        "quantities.weights",
        "report",
    )
    assert len(rooms) > 1
    assert [name for name in rooms if not all(inside(one, *(f"align_hooks.{room}" for room in data)) for one in ours(name))] == []


def test_a_record_is_checked_where_it_is_read() -> None:
    """What checks JSON is one module's; the others take its structures apart and put them together. Another tool's is its reader's."""
    checking = [name for name in MODULES if imports(name) & {"msgspec.convert", "msgspec.Struct"}]
    assert checking == ["align_hooks.evidence.dumps.msprobe", "align_hooks.record.schema"]


def test_only_the_command_line_and_the_report_print_with_rich() -> None:
    assert [name for name in importers("rich") if not inside(name, "align_hooks.cli", "align_hooks.report")] == []


def test_only_pages_need_the_html_extra() -> None:
    """And the terminal's report needs none of them."""
    pages = ("align_hooks.report.frame",)
    assert [name for name in importers("jinja2", "markupsafe", "vl_convert") if not inside(name, *pages)] == []
    assert {f"align_hooks.report.{name}" for name in ("page", "run_page", "check_page", "watch_page")} == importers(
        "align_hooks.report.frame"
    )


def test_only_configurations_are_read_by_libraries_of_their_languages() -> None:
    """And the tables of the CheckList, and what judges by them, need none."""
    readers = {"tree_sitter": "bash", "tree_sitter_bash": "bash", "yaml": "yaml_files"}
    for library, module in readers.items():
        assert importers(library) == {f"align_hooks.configuration.{module}"}
    assert importers("tokenizers") == {"align_hooks.checklist.batches"}


def test_only_what_knows_models_imports_families() -> None:
    """And everything but the families themselves asks the registry, never one of them."""
    knowing = tuple(
        f"align_hooks.{room}"
        for room in ("families", "torch_side", "ms_side", "doctor", "comparison", "replay", "checkpoints", "checklist.belongs")
    )
    assert [name for name in importers("align_hooks.families") if not inside(name, *knowing)] == []
    outside = [name for name in MODULES if not inside(name, "align_hooks.families")]
    asked = tuple(f"align_hooks.families.{module}" for module in ("family", "megatron", "own", "registry"))
    assert [name for name in outside for one in imports(name) if inside(one, "align_hooks.families") and not inside(one, *asked)] == []


@pytest.mark.parametrize("side", SIDES)
def test_every_public_function_of_a_side_is_defined_where_its_table_says(side: str) -> None:
    (modules,) = (
        ast.literal_eval(node.value)
        for node in ast.parse(MODULES[side].read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and node.targets[0].id == "PUBLIC"  # type: ignore[attr-defined]
    )
    own = {"align_hooks.torch_side": {"watch", "watched"}, "align_hooks.ms_side": {"capture", "SaveSteps"}}
    table = {name: module for module, names in modules.items() for name in names}
    assert set(table) == {"seed_all", "set_deterministic", "save_batch", "local_norms", "save_gradients"} | own[side]
    missing = []
    for function, module in table.items():
        path = MODULES.get(f"{side}.{module}")
        nodes = ast.parse(path.read_text("utf-8")).body if path else []
        defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        missing += [f"{side}.{module}.{function}"] if function not in defined else []
    assert missing == []


def fresh(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ALIGN_HOOKS_")} | variables
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300, check=False)


def test_importing_every_entrance_loads_no_framework_and_attaches_nothing_but_a_name_to_be() -> None:
    done = fresh(
        "import sys, threading\n"
        "finders, path, hook, threads = list(sys.meta_path), list(sys.path), sys.excepthook, threading.active_count()\n"
        "import align_hooks, align_hooks.torch_side, align_hooks.hf_side.library, align_hooks.cli\n"
        "assert align_hooks.cli.app.commands\n"
        "finders == sys.meta_path or print('a finder')\n"
        "import align_hooks.ms_side\n"
        f"print(sorted({{name.partition('.')[0] for name in sys.modules}} & {FRAMEWORKS}))\n"
        "print(sys.path == path, sys.excepthook is hook, threading.active_count() == threads)\n"
        "import wrapt.importer as importer\n"
        "print(list(importer._post_import_hooks))\n"
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["[]", "True True True", "['mindformers.dataset.base_dataset']"]  # NumpyDataloader's


def test_the_import_form_attaches_where_a_variable_is_set() -> None:
    done = fresh(
        "import align_hooks.ms_side, sys, wrapt.importer as importer\n"
        "print(bool(importer._post_import_hooks), 'mindspore' in sys.modules)\n",
        ALIGN_HOOKS_LOCAL_NORMS="all",
    )
    assert done.stdout == "True False\n"


@pytest.mark.parametrize(
    ("statement", "attaches"),
    every(
        4,
        [
            ("import align_hooks.ms_side", True),
            ("from align_hooks import ms_side", True),
            ("from align_hooks.ms_side import seed_all", True),
            ("import importlib; importlib.import_module('align_hooks.ms_side')", True),
            ("import align_hooks.ms_side.environment", False),
            ("from align_hooks.ms_side.batch import *", False),
            ("import importlib; importlib.import_module('align_hooks.ms_side.catalogue')", False),
            ("import align_hooks.torch_side, align_hooks.torch_side.catalogue", False),
            ("import align_hooks.ms_side.environment, align_hooks.doctor.fit, align_hooks.cli; align_hooks.cli.app.commands", False),
        ],
    ),
)
def test_only_the_side_itself_attaches(statement: str, *, attaches: bool) -> None:
    done = fresh(f"{statement}\nimport wrapt.importer as importer\nprint(bool(importer._post_import_hooks))", ALIGN_HOOKS_LOCAL_NORMS="all")
    assert done.stdout == f"{attaches}\n"


def test_the_import_form_refuses_an_unknown_variable() -> None:
    done = fresh("import align_hooks.ms_side\nprint('went on')", ALIGN_HOOKS_NONSENSE="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("align_hooks: ALIGN_HOOKS_NONSENSE: no such variable")


@pytest.mark.parametrize("name", ["show", "env", "doctor"])
def test_a_command_loads_no_other_command(name: str) -> None:
    done = fresh(f"import sys\nfrom align_hooks.cli import app\ntry: app(['{name}', '--help'])\nfinally: print(*sys.modules)")
    rooms = {module.removeprefix("align_hooks.cli.") for module in done.stdout.split() if module.startswith("align_hooks.cli.")}
    assert rooms - {"application", "files", "output"} == {name}


def test_what_trains_loads_no_catalogue_of_words() -> None:
    done = fresh(
        "import align_hooks.ms_side, align_hooks.torch_side, sys\n"
        "import align_hooks.record.reader, align_hooks.record.writer, align_hooks.replay.batches, align_hooks.replay.weights\n"
        "print(sys.modules['align_hooks.messages.catalogue'].catalogue.cache_info().currsize)\n",
        ALIGN_HOOKS_LOCAL_NORMS="all",
    )
    assert done.stdout == "0\n"


def test_reading_a_record_needs_neither_wrapt_nor_rich() -> None:
    done = fresh("import align_hooks, sys; print(sorted({'wrapt', 'rich'} & set(sys.modules)))")
    assert done.stdout == "[]\n"


FIRST = """
import importlib, sys
for name in sys.stdin.read().split():
    for loaded in [one for one in sys.modules if one.partition(".")[0] == "align_hooks"]:
        del sys.modules[loaded]
    importlib.import_module(name)
    print(name, sorted({"torch", "megatron", "mindspore", "mindformers", "transformers"} & set(sys.modules)))
"""


@pytest.mark.slow  # a minute: each is imported with none of ours loaded
def test_every_shared_module_can_be_the_first_one_imported_and_loads_no_framework() -> None:
    names = [name for name in MODULES if not inside(name, *SIDES, THIRD) and not name.endswith("__main__")]
    done = subprocess.run([sys.executable, "-c", FIRST], input=" ".join(names), capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{name} []" for name in names]
