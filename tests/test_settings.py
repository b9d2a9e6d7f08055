"""Every ALIGN_HOOKS_* variable: how it is read, and how a problem is told."""

import os
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from align_hooks.errors import SettingsError
from align_hooks.quantities.local_norms import LOCAL_NORMS
from align_hooks.settings import PREFIX, Settings, Steps


def read(**variables: str) -> Settings:
    return Settings.from_environment({PREFIX + name.upper(): value for name, value in variables.items()})


@pytest.mark.parametrize(
    ("text", "chosen"),
    [("all", [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]), ("none", []), ("3", [3]), ("0,4-8/2", [0, 4, 6, 8]), ("2-4, 7", [2, 3, 4, 7]), ("5-5", [5])],
)
def test_a_steps_value_chooses_its_steps_with_the_last_included(text: str, chosen: list[int]) -> None:
    steps = Steps.parse(text)
    assert [step for step in range(10) if step in steps] == chosen
    assert steps.count(range(10)) == len(chosen)
    assert bool(steps) == bool(chosen)


@pytest.mark.parametrize("text", ["", "x", "-1", "1-", "1,,2", "4-2", "1/2", "1-4/0", "1-4/", "١", "1.0", "ALL", "1-2-3", "0-9//2"])
def test_anything_else_is_no_steps_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"none of all|ends before|stride"):
        Steps.parse(text)


@given(st.integers(0, 50), st.integers(0, 50), st.integers(1, 7))
def test_a_strided_range_is_pythons_with_its_end(first: int, length: int, stride: int) -> None:
    steps = Steps.parse(f"{first}-{first + length}/{stride}")
    assert {step for step in range(200) if step in steps} == set(range(first, first + length + 1, stride))


HUGE = "99999999999"


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 7)), max_size=6), st.integers(0, 30), st.integers(0, 30))
def test_steps_are_counted_as_they_are_one_by_one(parts: list[tuple[int, int, int]], first: int, length: int) -> None:
    steps = Steps.parse(",".join(f"{one}-{one + more}/{stride}" for one, more, stride in parts) or "none")
    window = range(first, first + length)
    chosen = [step for step in range(100) if step in steps]
    assert steps.count(window) == len([step for step in window if step in steps])
    assert steps.single() == (chosen[0] if len(chosen) == 1 else None)
    assert steps.last == max(chosen, default=None)
    assert steps.first_outside(window) == next((step for step in chosen if step not in window), None)


COUNTS = {
    "a range": (f"0-{HUGE}", 10**11),
    "strides that meet": (f"0-{HUGE}/2,0-{HUGE}/3", 66666666667),
    "strides that do not": (f"0-{HUGE}/2,1-{HUGE}/2", 10**11),
    "one in another": (f"0-{HUGE},5,7-{HUGE}/3", 10**11),
    "many strides": (",".join(f"0-{HUGE}/{stride}" for stride in range(2, 30)), None),
    "many numbers": (",".join(map(str, range(0, 40_000, 2))), 20_000),
}


@pytest.mark.parametrize(("text", "count"), COUNTS.values(), ids=COUNTS)
def test_ranges_longer_than_any_run_are_answered_by_arithmetic(text: str, count: int | None) -> None:
    """One by one each of these takes hours, or all memory."""
    steps = Steps.parse(text)
    found = steps.count(range(10**12))
    assert found == count or (count is None and 10**11 // 2 < found < 10**11)
    assert steps.single() is None
    assert steps.first_outside(range(10)) is not None


@pytest.mark.parametrize("text", ["9" * 16, "0-" + "9" * 5000, f"0-1/{'9' * 5000}", "x" * 5000])
def test_a_number_of_thousands_of_digits_is_refused_in_a_short_line(text: str) -> None:
    with pytest.raises(ValueError, match=r"no run makes so many steps|is none of all") as caught:
        Steps.parse(text)
    assert len(str(caught.value)) < 300


def test_no_variable_asks_for_nothing() -> None:
    settings = Settings.from_environment({"PATH": "/bin", "ALIGNED_HOOKS_RUN": "x", "_ALIGN_HOOKS_STARTED": "1"})
    assert settings == Settings()
    assert not settings.any_set()


@pytest.mark.parametrize(
    ("asked", "variables"),
    [
        *((False, one) for one in ({"batches": "none"}, {"deterministic": "0"}, {"on_error": "warn"}, {"run_exists": "refuse"})),
        *((True, one) for one in ({"seed": "1"}, {"local_norms": "0"}, {"learning_rate": "0"}, {"device": "cpu"})),
    ],
)
def test_one_switch_is_enough_to_ask_and_a_default_written_out_asks_for_nothing(*, asked: bool, variables: dict[str, str]) -> None:
    assert read(**variables).any_set() is asked


@pytest.mark.parametrize("name", ["ALIGNHOOKS_RUN", "ALIGN_HOOK_RUN", "align_hooks_run"])
def test_a_variable_whose_prefix_is_misspelt_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name}: no such variable; did you mean ALIGN_HOOKS_RUN?"):
        Settings.from_environment({name: "run"})
    assert Settings.from_environment({name: "mine", "ALIGN_HOOKS_RUN": "run"}).run == Path("run").absolute()


def test_all_problems_are_told_at_once_one_a_line() -> None:
    with pytest.raises(SettingsError) as caught:
        read(seed="x", deterministic="yes", weights="1-", nonsense="1", learning_rate="-1")
    lines = str(caught.value).splitlines()
    assert len(lines) == 5
    assert all(line.startswith(PREFIX) for line in lines)


LONG = "9" * 5000
OUT_OF_DOMAIN = {
    "seed": ("0", "4294967296", "-3", LONG, "1e3", ""),
    "deterministic": ("true",),
    "learning_rate": (LONG, "nan", "inf", "fast"),
    "device": ("gpu",),
    "on_error": ("ignore",),
    "run_exists": ("overwrite",),
    "local_norms_point": ("clipped",),
    "run": ("",),
    "replay_batches": ("@3",),
}
REFUSED = (
    *((name, value, PREFIX + name.upper()) for name, values in OUT_OF_DOMAIN.items() for value in values),
    ("batche", "all", "ALIGN_HOOKS_BATCHE: no such variable; did you mean ALIGN_HOOKS_BATCHES"),
    ("zzzzzzzzzzzzzzz", "1", "align-hooks env"),  # a name with no near one points to the list
    *((reserved, "all", "no such variable") for reserved in ("activation_statistics", "teacher_forcing")),
    *((kind, "all", f"{PREFIX}{kind.upper()}: nowhere to record to; set {PREFIX}RUN") for kind in ("batches", "gradients", "weights")),
    *(("load_weights", f"/run@{steps}", "weights are those of one step") for steps in ("all", "none", "1,2", "0-3")),
    ("load_weights", "/models/llama@main", "write /models/llama@main@0 if"),  # an @ in a directory's name
)
"""A variable, a value that it may not have, and what is said of it."""


@pytest.mark.parametrize(("name", "value", "said"), REFUSED)
def test_what_is_refused_is_named_with_the_way_out(name: str, value: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        read(**{name: value})


def test_values_are_read_as_what_they_mean(tmp_path: Path) -> None:
    settings = read(run=str(tmp_path), seed="7", deterministic="1", learning_rate="0", local_norms=" 2 ")
    assert (settings.run, settings.seed, settings.deterministic, settings.learning_rate) == (tmp_path.resolve(), 7, True, 0.0)
    assert 2 in settings.steps(LOCAL_NORMS)
    assert read(local_norms="all").run is None  # alone they only print


def test_what_follows_the_last_at_chooses_steps(tmp_path: Path) -> None:
    source = read(replay_batches=f"{tmp_path}/a@b@2-4").replay_batches
    assert source is not None
    assert source.path == tmp_path.resolve() / "a@b"
    assert [step for step in range(6) if step in source.steps] == [2, 3, 4]


def test_a_source_without_steps_is_all_batches_and_the_initial_weights(tmp_path: Path) -> None:
    settings = read(replay_batches=str(tmp_path), load_weights=str(tmp_path))
    assert [source and source.steps.text for source in (settings.replay_batches, settings.load_weights)] == ["all", "0"]


@pytest.mark.parametrize("name", ["replay_batches", "load_weights"])
def test_a_run_is_not_recorded_over_its_own_source(name: str, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "run")
    with pytest.raises(SettingsError, match="record into another directory"):
        read(run=str(tmp_path / "run"), **{name: str(tmp_path / "link")})


def test_the_home_directory_and_relative_paths_are_resolved(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/someone")
    assert read(run="here").run == tmp_path.resolve() / "here"
    assert read(run="~/there").run == Path("/home/someone/there")


def test_settings_as_text_read_back_as_the_same_settings(tmp_path: Path) -> None:
    settings = read(run=str(tmp_path), seed="3", deterministic="1", weights="0,5", learning_rate="0.001", load_weights=f"{tmp_path}/a@2")
    text = {name: value for name, value in settings.as_text().items() if value is not None}
    assert read(**text) == settings


def test_every_variable_says_its_value_and_effect_and_reading_leaves_the_environment_alone() -> None:
    before = dict(os.environ)
    read(seed="5")
    assert dict(os.environ) == before
    assert all(one.metadata["value"] and one.metadata["effect"] for one in fields(Settings))
