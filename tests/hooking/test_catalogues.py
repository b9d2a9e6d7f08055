"""Both catalogues as data: nothing in them may be wrong in a way that only a training run would find out. Imports no framework."""

import ast
import importlib.metadata
import importlib.util
import json
import warnings
from collections import Counter
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from align_hooks.hooking.attach import VERSION_MODULES
from align_hooks.hooking.hook import Hook
from align_hooks.ms_side.catalogue import FROM_SOURCE, PYNATIVE_TRAINER, PYNATIVE_VERSIONS
from align_hooks.ms_side.catalogue import HOOKS as MS_HOOKS
from align_hooks.settings import PREFIX, Settings
from align_hooks.torch_side.catalogue import CORE
from align_hooks.torch_side.catalogue import HOOKS as TORCH_HOOKS
from chosen import in_one

SIDES = {"torch": TORCH_HOOKS, "ms": MS_HOOKS}
HOOKS = [hook for hooks in SIDES.values() for hook in hooks]
NO_VERSION = {"mindspeed", "megatron-bridge"}
"""Packages of which a hook is attached to any version, and its handler refuses those that were not tried."""
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
RESULTS = Path(__file__).parents[1] / "matrix" / "results"
NEVER_RELEASED = {"mindformers": {f"1.{minor}" for minor in range(11, 20)}, "mindspore": set()}
"""Minor versions that no range can leave out shortly: after MindFormers 1.9 came 2.0."""
OF_SLOW_TESTS = {"mindformers": {Version("2.0.0")}, "mindspore": set()}
"""What ``tests/real/test_pynative.py`` trains by both trainers: without us it does not start, for the index lacks hyper-parallel."""
SAMPLES = {
    **dict.fromkeys(("run", "replay_batches", "load_weights", "teacher"), "runs/a"),
    **dict.fromkeys(("seed", "deterministic", "perturb"), "1"),
    **{"run_exists": "replace", "local_norms_point": "local", "local_norms_print": "all", "teacher_points": "*"},
    **{"learning_rate": "0", "device": "cpu", "on_error": "raise"},
}
"""Values of variables that are not given steps."""
BESIDE = {
    **dict.fromkeys(("batches", "gradients", "weights", "sketches", "optimizer_state", "routing", "activations"), "run"),
    **{"teacher_points": "teacher", "perturb": "load_weights"},
}
"""The variable without which another one is refused."""


def source(module: str) -> Path | None:
    """The file of a module, found without importing it or its parents (only the top package is looked up)."""
    top, *parts = module.split(".")
    spec = importlib.util.find_spec(top)
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in (Path(place).joinpath(*parts).with_suffix(".py"), Path(place).joinpath(*parts, "__init__.py")):
            if path.is_file():
                return path
    return None


@cache
def definitions(path: Path) -> dict[str, ast.stmt]:
    """Functions, classes and their methods that a file defines, by dotted name."""
    defined: dict[str, ast.stmt] = {}
    with warnings.catch_warnings(action="ignore"):  # of the frameworks' own source
        module = ast.parse(path.read_text("utf-8"))
    for node in module.body:
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            defined[node.name] = node
        if isinstance(node, ast.ClassDef):
            defined |= {f"{node.name}.{inner.name}": inner for inner in node.body if isinstance(inner, FUNCTIONS)}
    return defined


@in_one(HOOKS)
def test_every_body_is_a_function_of_the_right_shape_in_an_existing_file(hook: Hook) -> None:
    module, colon, name = hook.handler.partition(":")
    path = source(module)
    assert colon and path is not None, f"{module} is no file"
    body = definitions(path).get(name)
    assert isinstance(body, ast.FunctionDef), f"{path} defines no function {name}"
    assert len(body.args.args) == (5 if hook.targets else 2)


@in_one(HOOKS)
def test_nothing_is_hooked_unless_something_is_set(hook: Hook) -> None:
    assert hook.asked(Settings()) is False


@pytest.mark.parametrize("side", SIDES)
def test_no_two_hooks_share_a_name_or_a_seam(side: str) -> None:
    """The patch log wraps an attribute once, so that the second hook would never fire."""
    names = Counter(hook.name for hook in SIDES[side])
    seams = Counter((hook.trigger, target) for hook in SIDES[side] for target in hook.targets)
    assert {**names, **seams} == dict.fromkeys([*names, *seams], 1)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("field", [field.name for field in fields(Settings) if field.name != "storage"])  # a permission asks for nothing
def test_every_variable_alone_asks_for_a_hook_that_must_fire(side: str, field: str) -> None:
    """So that no variable can be set on a side without something that notices when it had no effect."""
    needed = {field, BESIDE.get(field, field)}
    settings = Settings.from_environment({PREFIX + name.upper(): SAMPLES.get(name, "0-9") for name in needed})
    asked = [hook for hook in SIDES[side] if hook.asked(settings)]
    assert any(hook.must_fire for hook in asked)
    assert {hook.asked(settings) for hook in asked} == {True}


@in_one(HOOKS)
def test_every_range_parses_and_has_both_ends(hook: Hook) -> None:
    if hook.package in NO_VERSION:
        assert not hook.supports and not hook.must_fire
        return
    operators = {specifier.operator for specifier in SpecifierSet(hook.supports)}
    assert operators & {">=", ">", "==", "~="} and operators & {"<", "<=", "==", "~="}


@in_one(HOOKS)
def test_every_package_says_its_version_somewhere_known(hook: Hook) -> None:
    assert hook.package in NO_VERSION or source(VERSION_MODULES[hook.package]) is not None


def covers(hook: Hook) -> bool:
    """Whether the installed framework is inside the hook's range; skips where it is not installed."""
    try:
        installed = importlib.metadata.version(hook.package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{hook.package} is not installed")
    return Version(installed).base_version in SpecifierSet(hook.supports)


@in_one(HOOKS)
def test_the_installed_framework_is_inside_the_range_of_every_hook_that_must_fire(hook: Hook) -> None:
    assert covers(hook) or not hook.must_fire


@pytest.mark.parametrize("package", ["mindformers", "mindspore"])
def test_the_ranges_of_mindformers_hold_what_the_matrix_proved_or_source_alone_tells_and_nothing_else(package: str) -> None:
    results = [json.loads(path.read_text("utf-8")) for path in RESULTS.glob("mindformers-*.json")]
    proven = {Version(result["packages"][package]) for result in results if result["gap"] is None}
    assert proven
    proven |= OF_SLOW_TESTS[package]
    for text in {hook.supports for hook in MS_HOOKS if hook.package == package} - {PYNATIVE_VERSIONS}:
        assert [version for version in proven if version not in SpecifierSet(text)] == []
        minors = (f"{major}.{number}" for major in range(4) for number in range(20))
        inside = {minor for minor in minors if f"{minor}.0" in SpecifierSet(text)}
        ran = {f"{version.major}.{version.minor}" for version in proven}
        assert inside - NEVER_RELEASED[package] == ran | (set(FROM_SOURCE) if package == "mindspore" else set())
        assert ran.isdisjoint(FROM_SOURCE)


@in_one(HOOKS)
def test_every_trigger_is_a_module_of_the_installed_framework_that_defines_the_targets(hook: Hook) -> None:
    """And a hook whose range leaves the installed version out does so because its trigger is gone, or its trainer not yet the one tried."""
    if hook.package in NO_VERSION and source(hook.trigger) is None:
        return
    inside, path = covers(hook), source(hook.trigger)
    if not inside and hook.variant == PYNATIVE_TRAINER:
        return
    assert (path is not None) == inside, f"{hook.trigger} is {path} in a version {'inside' if inside else 'outside'} {hook.supports}"
    if path is not None:
        derived = {target for target in hook.targets if target.partition(".")[0] in definitions(path)} if is_alternative(hook) else set()
        assert [target for target in hook.targets if target not in {*definitions(path), *derived}] == []


def is_alternative(hook: Hook) -> bool:
    """Whether a hook is of a class that newer versions derive from that of another: MambaModel's forward is HybridModel's."""
    return bool(hook.variant) and not hook.must_fire


def test_the_range_of_megatron_is_what_the_matrix_proved() -> None:
    """Every minor version in the range has a proven release, every proven release is in it, and none that starts nowhere is."""
    results = [json.loads(path.read_text(encoding="utf-8")) for path in RESULTS.glob("megatron-*.json")]
    proven = [Version(result["version"]) for result in results if result["verdict"] == "aligned" and result["gap"] is None]
    gaps = {Version(result["version"]) for result in results} - set(proven)
    supported = SpecifierSet(CORE)
    assert [version for version in proven if version not in supported] == []
    assert [version for version in gaps if version in supported] == []
    minors = {minor for minor in range(100) for patch in range(10) if Version(f"0.{minor}.{patch}") in supported}
    assert {version.minor for version in proven} == minors


@in_one(HOOKS)
def test_every_hook_says_why_in_one_line(hook: Hook) -> None:
    assert hook.why and "\n" not in hook.why
