"""Every recorded quantity of the registry, and what other packages have to say of each."""

from dataclasses import fields
from pathlib import Path

import pytest

from align_hooks import open_run
from align_hooks.comparison import noise
from align_hooks.comparison.distances import MEASURED
from align_hooks.comparison.finding import Metric
from align_hooks.quantities import registry
from align_hooks.quantities.kind import Quantity
from align_hooks.quantities.scalars import SCALARS
from align_hooks.record import inventory
from align_hooks.record.format import layout
from align_hooks.settings import PREFIX, Settings
from docs import rules
from synthetic import STEPS, routed

EVERY = pytest.mark.parametrize("kind", registry.KINDS, ids=lambda kind: kind.name)
STORED = [kind for kind in registry.KINDS if kind is not SCALARS and kind.sketch_of is None]


@EVERY
def test_every_quantity_is_a_module_of_its_own(kind: Quantity) -> None:
    folder = Path(registry.__file__).parent
    modules = {path.stem for path in folder.glob("*.py")} - {"__init__", "kind", "registry"}
    assert modules == {each.variable for each in registry.KINDS}
    assert kind.variable in modules


@EVERY
def test_names_and_files_tell_quantities_apart(kind: Quantity) -> None:
    others = [other for other in registry.KINDS if other is not kind]
    assert not any(
        other.name.startswith(kind.name) for other in others
    )  # a manifest and a row name a state, or its folder, by its beginning
    assert not {file for other in others for file in other.files} & set(kind.files)
    assert all(file.startswith(f"{kind.name}/") for file in kind.files if kind.is_state)
    assert not any(layout.is_state(file) for file in kind.files if not kind.is_state)
    assert layout.is_state(kind.name) is kind.is_state
    assert bool(kind.files) == bool(kind.whole) and (kind.is_rows or kind.whole in kind.files)
    assert all(registry.kind_of_file(file) is kind for file in kind.files)


@EVERY
def test_sketches_are_numbered_and_taken_as_what_they_are_of(kind: Quantity) -> None:
    if kind.sketch_of is not None:
        of = kind.sketch_of
        assert (kind.is_state, kind.trainable, kind.of_gradients) == (of.is_state, of.trainable, of.of_gradients)


def test_every_switch_is_a_variable_with_its_options_behind_it() -> None:
    names = [field.name for field in fields(Settings)]
    expected = [name for switch in registry.SWITCHES for name in (switch.name, *(option.name for option in switch.options))]
    first = names.index(expected[0])
    assert names[first : first + len(expected)] == expected
    settings = Settings.from_environment({PREFIX + "RUN": "run"} | {PREFIX + switch.name.upper(): "1-2" for switch in registry.SWITCHES})
    assert all(settings.steps(switch).text == "1-2" for switch in registry.SWITCHES)
    assert all(settings.steps(kind).text == ("all" if kind is SCALARS else "1-2") for kind in registry.KINDS)
    options = [option for switch in registry.SWITCHES for option in switch.options]
    assert all(settings.choice(option) == option.values[0] for option in options if option.values)
    assert not any(settings.patterns(option) for option in options if not option.values)


@EVERY
def test_the_rules_of_a_record_have_one_for_every_file(kind: Quantity) -> None:
    files = [f"step_3/rank_0/{file}" for file in kind.files] or [f"{kind.name}/rank_0.jsonl"]
    for file in (*files, *kind.shared):
        assert len([rule for rule in rules.RULES if rule.is_of(file)]) == 1, file


def test_what_has_files_can_be_looked_into() -> None:
    assert {kind.name for kind in registry.KINDS if kind.files} <= set(inventory.READ) <= set(registry.BY_NAME)


def test_what_is_stored_is_compared() -> None:
    """Each has its distance or is known to have none, and a finding can be of it."""
    names = {kind.name for kind in STORED}
    assert names - set(MEASURED) == {"batches", "optimizer_state"}  # held equal, or against the default alone
    assert names <= {quantity.value for quantity in Metric}
    assert set(noise.LEAST) | set(noise.MANY) <= set(MEASURED)


def test_a_run_that_recorded_everything_has_every_quantity_at_every_number(tmp_path: Path) -> None:
    run = open_run(routed("sketches", "routing", "activations").write(tmp_path / "run"))
    for kind in registry.KINDS:
        assert run.steps_of(kind.name) == list(kind.numbers(range(STEPS))) == sorted(kind.possible(range(STEPS))), kind.name
    assert {holding.kind: holding.steps for holding in inventory.inventory(run)} == {
        kind.name: tuple(kind.numbers(range(STEPS))) for kind in registry.KINDS
    }
