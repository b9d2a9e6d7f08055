"""Who may import whom, read from the source and tried in a fresh interpreter."""

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
THIRD = "align_hooks.oracle"
"""The package of Hugging Face's opinion, in which nothing trains."""


def module_of(path: Path) -> str:
    """The dotted name of a file of the package."""
    return ".".join(("align_hooks", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_of(path): path for path in sorted(SOURCE.rglob("*.py"))}
"""Module name to file, of the whole package."""
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


def inside(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(package + ".") for package in packages)


def importers(*targets: str) -> set[str]:
    return {name for name in MODULES if any(inside(one, *targets) for one in imports(name))}


def ours(name: str) -> set[str]:
    return {one for one in imports(name) if inside(one, "align_hooks")}


def in_package(modules: str) -> list[str]:
    return [f"align_hooks.{module}" for module in modules.split()]


def test_the_walk_sees_the_whole_package() -> None:
    assert set(in_package("cli torch_side.hooks.train_step ms_side.hooks.training")) | {"align_hooks"} <= set(MODULES)
    assert "torch" in imports("align_hooks.torch_side.model")
    assert "mindspore" in imports("align_hooks.ms_side.model")


IMPORTED_ONLY_BY = {
    "megatron": "torch_side",
    "torch": "torch_side oracle",
    "transformers": "oracle",
    "mindspore mindformers": "ms_side",
    "wrapt": "hooking",
    "xxhash": "record.format.digests",
    "rich": "cli report",
    "jinja2 markupsafe vl_convert": "report.html",  # the html extra: the terminal's report needs none of it
    "tree_sitter": "configuration.bash",  # and the tables of the CheckList, and what judges by them, read no language
    "tree_sitter_bash": "configuration.bash",
    "yaml": "configuration.yaml_files",
    "tokenizers": "checklist.batches",
    "align_hooks.torch_side": "torch_side",
    "align_hooks.ms_side": "ms_side",
    THIRD: "oracle cli.arbitrate",
    "align_hooks.report.html": "report.comparison_page cli.files",
    "align_hooks.families": "families torch_side ms_side oracle doctor comparison replay checkpoints checklist.family_match",
}
"""Library or package to the packages and modules that import it."""


@pytest.mark.parametrize(("targets", "modules"), IMPORTED_ONLY_BY.items(), ids=IMPORTED_ONLY_BY)
def test_what_only_these_import(targets: str, modules: str) -> None:
    importing, listed = importers(*targets.split()), in_package(modules)
    assert [name for name in importing if not inside(name, *listed)] == []
    assert [module for module in listed if not any(inside(name, module) for name in importing)] == []


LAYERS = (
    ("_version", "data_file"),
    ("errors", "messages", "quantities", "regular"),
    ("extras",),
    ("names", "process"),
    ("configuration",),
    ("families", "settings"),
    ("record",),
    ("replay", "hooking", "comparison", "checklist", "patched"),
    ("session", "checkpoints"),
    ("job", "evidence", "scenarios"),
    ("proof",),
    ("torch_side", "ms_side", "oracle", "doctor"),
    ("report",),
    ("cli", "python"),
    ("testing",),
)
"""The packages of align_hooks, the lowest layer first. A package imports packages of layers below its own, and none beside it."""
LAYER_OF = {package: layer for layer, packages in enumerate(LAYERS) for package in packages}
ENTRANCE = "__main__"
"""What ``python -m`` starts: it stands above all layers, in whatever package it lies, and no module imports it."""


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


def file_of(module: str) -> Path | None:
    """The file of a module of the package or of the tests; None of a library, and of a folder of the tests."""
    if module in MODULES:
        return MODULES[module]
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    return path if path.exists() else None


def test_what_tools_take_of_a_module_of_the_package_or_the_tests_is_there() -> None:
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
                if inner := file_of(f"{node.module}.{alias.name}"):
                    files[alias.asname or alias.name] = inner
                elif source := file_of(node.module):
                    taken.append((source, alias.name))
                elif inside(node.module, "align_hooks"):
                    lost.append((str(path), node.module, alias.name))
        uses = [node for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)]
        taken += [(files[node.value.id], node.attr) for node in uses if node.value.id in files]
        lost += [(str(path), source.name, name) for source, name in taken if name not in made_in(source)]
    assert lost == []


def package_of(name: str) -> str:
    return name.split(".")[1]


def test_every_package_is_in_one_layer() -> None:
    packages = {package_of(name) for name in MODULES if name not in ("align_hooks", f"align_hooks.{ENTRANCE}")}
    assert sorted(packages) == sorted(package for layer in LAYERS for package in layer)


def test_packages_import_only_what_is_in_layers_below() -> None:
    inner = [name for name in MODULES if name != "align_hooks" and not name.endswith(ENTRANCE)]
    arrows = {(package_of(name), package_of(target), name) for name in inner for target in ours(name) if target != "align_hooks"}
    between = [(package, target, name) for package, target, name in sorted(arrows) if target in LAYER_OF and target != package]
    assert [(name, target) for package, target, name in between if LAYER_OF[target] >= LAYER_OF[package]] == []


def test_no_modules_import_each_other() -> None:
    """Under TYPE_CHECKING too: what must be read together is one module, or has a third below both."""
    TopologicalSorter({name: {target for target in ours(name) if target in MODULES} - {name} for name in MODULES}).prepare()


WITHIN = {
    "record": ("format", "read", "write", "check"),
    "comparison": ("metrics", "settings", "patterns", "control_band", "optimizer", "data", "stages", "diagnosis"),
}
"""Package to the packages in it, each of which imports those before it alone."""


@pytest.mark.parametrize("package", WITHIN)
def test_packages_in_a_package_import_one_way(package: str) -> None:
    inner = [f"align_hooks.{package}.{name}" for name in WITHIN[package]]
    folders = {f"align_hooks.{package}.{path.parent.name}" for path in (SOURCE / package).glob("*/__init__.py")}
    assert folders == set(inner)
    later = {one: inner[index + 1 :] for index, one in enumerate(inner)}
    wrong = [
        (name, target) for one in inner for name in MODULES if inside(name, one) for target in ours(name) if inside(target, *later[one])
    ]
    assert wrong == []


def test_nothing_imports_an_entrance() -> None:
    assert importers(*(name for name in MODULES if name.endswith(ENTRANCE))) == set()


IMPORTS_OF_OURS = {
    "comparison": """
        comparison configuration.pynative data_file extras messages families.registry names.blocks names.points quantities settings
        process.work process.storage
        record.reader record.inventory record.batch_statistics record.check.contradictions record.check.gaps
        record.check.self_check record.format.documents record.format.ending record.format.layout record.format.missing_batch
        record.format.rows record.format.schema record.format.shard record.format.state
        record.format.stored_tensor record.format.terms record.read.activations record.read.batch record.read.batch_digests
        record.read.loss_weights record.read.problems record.read.routing record.read.tensors
    """,
    "report": """
        comparison.verdict comparison.finding comparison.stage_result comparison.stages
        comparison.health comparison.metrics.limits comparison.metrics.model_positions comparison.control_band.signed_drift
        comparison.settings.recorded comparison.arbitration
        comparison.control_band.watching comparison.optimizer.zero_lr
        checklist.canonical_values checklist.edits checklist.lookup checklist.judge checklist.result checklist.row checklist.uncovered
        scenarios proof.cost proof.difference proof.proof proof.training
        doctor.examination doctor.frameworks errors extras data_file messages quantities.weights report
        record.inventory record.batch_statistics record.format.layout record.format.schema record.read.problems record.write.atomic
    """,
}
"""Package to all that it imports of ours: ``comparison`` knows a run and nothing that writes one, ``report`` only what is reported."""


@pytest.mark.parametrize("package", IMPORTS_OF_OURS)
def test_what_a_package_imports_of_ours(package: str) -> None:
    names, listed = [name for name in MODULES if inside(name, f"align_hooks.{package}")], in_package(IMPORTS_OF_OURS[package])
    assert len(names) > 5
    assert [name for name in names if not all(inside(one, *listed) for one in ours(name))] == []
    assert [module for module in listed if not any(inside(one, module) for name in names for one in ours(name))] == []


def test_a_record_is_checked_where_it_is_read() -> None:
    """The format's modules check JSON, and the reader of rows those; another tool's is its reader's, and a card its own."""
    checking = [name for name in MODULES if imports(name) & {"msgspec.convert", "msgspec.Meta", "msgspec.json.Decoder"}]
    types = ("format.descriptions", "format.rows", "format.schema", "format.structured", "read.rows")
    of_others = "align_hooks.evidence.dumps.msprobe", "align_hooks.scenarios.card"
    assert checking == [of_others[0], *(f"align_hooks.record.{name}" for name in types), of_others[1]]


def test_what_msgspec_refuses_is_caught_by_its_name() -> None:
    """Its errors are no ValueErrors up to 0.20."""
    reads = {"convert", "decode", "_decoded", "msgspec.convert", "msgspec.json.decode"}
    unnamed = []
    for name, path in MODULES.items():
        for block in (node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Try)):
            called = {ast.unparse(call.func) for body in block.body for call in ast.walk(body) if isinstance(call, ast.Call)}
            caught = " ".join(ast.unparse(handler.type) for handler in block.handlers if handler.type)
            if called & reads and not ("MsgspecError" in caught or "ValidationError" in caught):
                unnamed.append(f"{name}:{block.lineno}")
    assert unnamed == []


def test_everything_but_the_families_asks_their_registry() -> None:
    outside = [name for name in MODULES if not inside(name, "align_hooks.families")]
    asked = in_package("families.family families.megatron families.own families.registry")
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
        "import align_hooks, align_hooks.torch_side, align_hooks.oracle, align_hooks.cli\n"
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


ATTACHES = {
    "import align_hooks.ms_side": (True, False),
    "from align_hooks import ms_side": (True, False),
    "from align_hooks.ms_side import seed_all": (True, True),
    "import importlib; importlib.import_module('align_hooks.ms_side')": (True, False),
    "import align_hooks.ms_side.environment": (False, False),
    "from align_hooks.ms_side.batch import *": (False, True),
    "import importlib; importlib.import_module('align_hooks.ms_side.catalogue')": (False, False),
    "import align_hooks.torch_side, align_hooks.torch_side.catalogue": (False, False),
    "import align_hooks.ms_side.environment, align_hooks.doctor.fit, align_hooks.cli; align_hooks.cli.app.commands": (False, False),
}
"""Statement to whether it attaches, and whether it loads MindSpore."""


@pytest.mark.parametrize(("statement", "attaches_and_loads"), every(4, ATTACHES.items()))
def test_only_the_side_itself_attaches_where_a_variable_is_set(statement: str, attaches_and_loads: tuple[bool, bool]) -> None:
    statistics = "import sys, wrapt.importer as importer\nprint((bool(importer._post_import_hooks), 'mindspore' in sys.modules))"
    assert fresh(f"{statement}\n{statistics}", ALIGN_HOOKS_LOCAL_NORMS="all").stdout == f"{attaches_and_loads}\n"


def test_the_import_form_refuses_an_unknown_variable() -> None:
    done = fresh("import align_hooks.ms_side\nprint('went on')", ALIGN_HOOKS_NONSENSE="1")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("align_hooks: ALIGN_HOOKS_NONSENSE: no such variable")


@pytest.mark.parametrize("name", ["show", "env", "doctor"])
def test_a_command_loads_no_other_command(name: str) -> None:
    done = fresh(f"import sys\nfrom align_hooks.cli import app\ntry: app(['{name}', '--help'])\nfinally: print(*sys.modules)")
    commands = {module.removeprefix("align_hooks.cli.") for module in done.stdout.split() if module.startswith("align_hooks.cli.")}
    assert commands - {"application", "files", "output", "runs"} == {name}


def test_what_trains_loads_no_catalogue_of_words() -> None:
    done = fresh(
        "import align_hooks.ms_side, align_hooks.torch_side, sys\n"
        "import align_hooks.record.reader, align_hooks.record.write.writer, align_hooks.replay.batches, align_hooks.replay.weights\n"
        "print(sys.modules['align_hooks.messages.catalogue'].catalogue.cache_info().currsize)\n",
        ALIGN_HOOKS_LOCAL_NORMS="all",
    )
    assert done.stdout == "0\n"


def test_reading_a_record_needs_neither_wrapt_nor_rich() -> None:
    assert fresh("import align_hooks, sys; print(sorted({'wrapt', 'rich'} & set(sys.modules)))").stdout == "[]\n"


FIRST = f"""
import importlib, sys
for name in sys.stdin.read().split():
    for loaded in [one for one in sys.modules if one.partition(".")[0] == "align_hooks"]:
        del sys.modules[loaded]
    importlib.import_module(name)
    print(name, sorted({FRAMEWORKS} & set(sys.modules)))
"""


@pytest.mark.slow  # a minute: each is imported with none of ours loaded
def test_every_shared_module_can_be_the_first_one_imported_and_loads_no_framework() -> None:
    names = [name for name in MODULES if not inside(name, *SIDES, THIRD) and not name.endswith("__main__")]
    done = subprocess.run([sys.executable, "-c", FIRST], input=" ".join(names), capture_output=True, text=True, timeout=300, check=False)
    assert done.stderr == ""
    assert done.stdout.splitlines() == [f"{name} []" for name in names]
