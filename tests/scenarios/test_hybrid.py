"""The HybridModel's command that follows from a GPTModel's."""

import shlex
from pathlib import Path

import pytest

from align_hooks.configuration.values import ConfigurationError
from align_hooks.scenarios.hybrid import SPECIFICATION, migration, of_hybrid

SIZES = "--hidden-size 8 --num-attention-heads 2"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("pretrain_gpt.py", "pretrain_hybrid.py"):
        (tmp_path / name).touch()
    return tmp_path


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        ("--num-layers 2", "*-*-"),
        ("--num-layers=3 --lr 1e-3", "*-*-*-"),
        ("--num-layers 2 --num-experts 4", "*E*E"),
        ("--num-layers 3 --num-experts 4 --moe-layer-freq ([0]*1+[1]*2)", "*-*E*E"),
        ("--num-layers 4 --num-experts 4 --moe-layer-freq 2", "*E*-*E*-"),
        ("--num-layers 2 --num-experts 4 --multi-latent-attention --mtp-num-layers 2", "+E+E/+E/+E"),
    ],
)
def test_a_pattern_follows_from_the_arguments(folder: Path, given: str, pattern: str) -> None:
    words = ["torchrun", "--nproc-per-node", "2", str(folder / "pretrain_gpt.py"), *SIZES.split(), *given.split()]
    made = of_hybrid(words)
    assert made[:4] == [*words[:3], str(folder / "pretrain_hybrid.py")]
    assert made[-5:] == ["--hybrid-layer-pattern", pattern, *SPECIFICATION]
    kept = [word for word in made[4:-5] if word.startswith("--")]
    dropped = ("--num-layers", "--moe-layer-freq", "--mtp-num-layers")
    assert kept == [word for word in words[4:] if word.startswith("--") and not word.startswith(dropped)]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("bash train.sh --num-layers 2", "does not name pretrain_gpt.py"),
        ("python elsewhere/pretrain_gpt.py --num-layers 2", "there is no elsewhere/pretrain_hybrid.py"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --lr 1", "does not tell which layers"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --num-layers 2 --num-experts 2 --moe-layer-freq f(2)", "does not tell which layers"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --hybrid-layer-pattern '*-'", "layers of its own"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --num-layers 2 --spec own layers", "layers of its own"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --num-layers 2 --window-attn-skip-freq 2", "--window-attn-skip-freq"),
        (f"python {{folder}}/pretrain_gpt.py {SIZES} --num-layers 2 --use-rope-scaling", "no such setting"),
    ],
)
def test_where_none_follows_it_says_why_and_what_to_do(folder: Path, words: str, why: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        of_hybrid(shlex.split(words.format(folder=folder)))
    assert why in str(raised.value) and "--to" in str(raised.value)


def test_a_command_that_is_given_is_taken_as_it_is(tmp_path: Path) -> None:
    given = ["python gpt.py --lr 1", "python hybrid.py --name 'a b'"]
    for steps, ending in ((3, " --exit-interval 3"), (None, "")):
        plan = migration(shlex.split(given[0]), given[1], tmp_path, steps)
        assert [plan.side(rung).command for rung in plan.rungs] == [words + ending for words in given]
    with pytest.raises(ConfigurationError, match="set --exit-interval 3 in it"):
        migration(["bash", "gpt.sh"], given[1], tmp_path, 3)
