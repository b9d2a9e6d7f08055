"""``--fix``: the candidate's YAML with what was told written into it, and not a letter else."""

import pytest
import yaml

from align_hooks.configuration.yaml_edits import with_settings

TEXT = """\
# the head, 文件头 🙂
seed: 1234  # of everything
model:
  model_config:
    num_layers: 4   # layers
    rope: {type: yarn, factor: 4.0}  # scaling

# the optimizer
optimizer:
  type: AdamW
  betas:
    - 0.9
    - 0.95  # beta2
  empty:
  text: |
    many
    lines

lr_schedule: &schedule
  type: Constant
other:
  lr: *schedule
callbacks:
- type: MFLossMonitor
- type: CheckpointMonitor
  steps: 5
last: *schedule
parallel:
  dp: &dp 1  # ranks
  strategy: [[*dp, 1], [*dp, 1]]
"""


def tree(text: str) -> object:
    return yaml.safe_load(text)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("key", "value", "removed", "added"),
    [
        ("seed", "7", ["seed: 1234  # of everything"], ["seed: 7  # of everything"]),
        ("model.model_config.num_layers", "8", ["    num_layers: 4   # layers"], ["    num_layers: 8   # layers"]),
        ("model.model_config.theta", "1.0e-05", [], ["    theta: 1.0e-05"]),
        ("model.model_config.rope.factor", "8.0", ["{type: yarn, factor: 4.0}"], ["{type: yarn, factor: 8.0}"]),
        ("model.model_config.rope.mscale", "1.0", ["{type: yarn, factor: 4.0}"], ["{type: yarn, factor: 4.0, mscale: 1.0}"]),
        ("optimizer.betas", "[0.8, 0.99]", ["  betas:", "    - 0.9", "    - 0.95  # beta2"], ["  betas: [0.8, 0.99]  # beta2"]),
        ("optimizer.empty", "3", ["  empty:"], ["  empty: 3"]),
        ("optimizer.text", "word", ["  text: |", "    many", "    lines"], ["  text: word"]),
        ("optimizer.eps", "1.0e-08", [], ["  eps: 1.0e-08"]),
        ("lr_schedule.lr_end", "0.1", [], ["  lr_end: 0.1"]),
        ("runner.wrapper.size", "True", [], ["runner:", "  wrapper:", "    size: True"]),
        ("callbacks", "[{type: MFLossMonitor}]", ["callbacks:"], ["callbacks: [{type: MFLossMonitor}]"]),
        ("other.lr", "5", ["  lr: *schedule"], ["  lr: 5"]),
        ("other.new", "5", [], ["  new: 5"]),
        ("parallel.dp", "2", ["  dp: &dp 1  # ranks"], ["  dp: &dp 2  # ranks"]),
        ("seed.inner", "5", ["seed: 1234  # of everything"], ["seed: {inner: 5}  # of everything"]),
    ],
)
def test_a_setting_is_written_and_nothing_else(newline: str, key: str, value: str, removed: list[str], added: list[str]) -> None:
    before = TEXT.replace("\n", newline)
    after = with_settings(before, "x.yaml", {key: value})
    *path, last = key.split(".")
    place = wanted = yaml.safe_load(before)
    for part in path:
        if not isinstance(place.get(part), dict):
            place[part] = {}
        place = place[part]
    place[last] = yaml.safe_load(value)
    if last == "dp":
        place["strategy"] = [[2, 1], [2, 1]]  # which names it
    assert tree(after) == wanted
    was, now = before.split(newline), after.split(newline)
    gone, come = [line for line in was if line not in now], [line for line in now if line not in was]
    assert all(any(piece in line for line in gone) for piece in removed) and all(any(piece in line for line in come) for piece in added)
    assert len(come) == len(added)
    assert newline == "\n" or "\n" not in after.replace("\r\n", "")


@pytest.mark.parametrize("text", ["seed: 1", "seed: 1\n", "{seed: 1}", "{}", "a: {}\n", "a:\n", "a: &x {b: 1}\nc: *x"])
def test_a_text_of_any_ending_takes_a_new_key(text: str) -> None:
    after = with_settings(text, "x.yaml", {"new.key": "[1, 2]", "a.b": "3"})
    held = yaml.safe_load(after)
    assert (held["new"], held["a"]["b"]) == ({"key": [1, 2]}, 3)
