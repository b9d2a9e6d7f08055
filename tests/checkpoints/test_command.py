"""The command: what it prints, its exit codes, and that a log is a log still."""

from pathlib import Path
from unittest import mock

import pytest
from transformers import CONFIG_MAPPING

from align_hooks.checkpoints import convert as converting
from align_hooks.checkpoints.convert import ConversionOptions, convert_weights
from align_hooks.checkpoints.model import model_type
from align_hooks.errors import AlignHooksError
from align_hooks.families.registry import FAMILIES
from checkpoints.models import DENSE, EXPERTS, Sizes, config, huggingface, record, tensors
from invoked import command


def test_it_says_what_it_did(tmp_path: Path) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    done = command("convert", source, tmp_path / "out", "--to", "megatron", "--layers", "local", "--vocabulary-rows", "128")
    said = (
        "15 tensors of a Llama of 2 layers, from Hugging Face to megatron",
        "model.embed_tokens.weight: filled up to 128 rows with zeros",
        "lm_head.weight: filled up to 128 rows with zeros",
        "names are those of --transformer-impl local; Megatron-LM says nothing of names that it lacks, so start it with that one",
        f"written: {tmp_path / 'out'}",
    )
    assert (done.returncode, " ".join(done.stdout.split())) == (0, " ".join(said))  # paragraphs are as wide as the terminal


ODD: dict[str, tuple[list[str], int, str]] = {
    "weights without --to": (["hf", "out"], 2, "--to says into what"),
    "an option of weights with a log": (["a.log", "out", "--dtype", "float16"], 2, "--to says into what"),
    "an unknown form": (["hf", "out", "--to", "onnx"], 2, "--to onnx: choose one of huggingface, megatron"),
    "an unknown type": (["hf", "out", "--to", "megatron", "--dtype", "int8"], 2, "--dtype int8: choose one of keep"),
    "unknown layers": (["hf", "out", "--to", "megatron", "--layers", "te"], 2, "--layers te: choose one of transformer-engine, local"),
    "an option of others": (["hf", "out", "--to", "mindspore", "--grouped-experts"], 2, "--grouped-experts says nothing of --to mindspore"),
    "--names with weights": (["hf", "out", "--to", "megatron", "--names", "run"], 2, "--names is of a log"),
    "a destination that is there": (["hf", ".", "--to", "megatron"], 2, "is there already"),
    "a destination that is the source": (["hf", "hf", "--to", "megatron"], 2, "name the same file"),
    "another end of a name": (["hf", "out", "--to", "mindspore-ckpt"], 2, "name"),
    "too few rows": (["hf", "out", "--to", "megatron", "--vocabulary-rows", "5"], 2, "has 11 rows"),
    "a model that is not said": (["a.ckpt", "out", "--to", "huggingface"], 2, "name its Hugging Face configuration with --config"),
    "experts in MindFormers": (["moe", "out", "--to", "mindspore"], 2, "Mixtral has no names in MindFormers"),
    "nothing there": (["none", "out", "--to", "megatron"], 3, "none is not there"),
    "a log with --to": (["a.log", "out", "--to", "megatron"], 3, "a.log is no checkpoint"),
    "a step that was not recorded": (["run@7", "out", "--to", "megatron"], 3, "holds no weights of step 7 (recorded: 0, 2)"),
    "a step that is none": (["run@x", "out", "--to", "megatron"], 3, "x is no step"),
    "an empty directory": (["empty", "out", "--to", "megatron"], 3, "holds no weights"),
    "a configuration that is none": (["hf", "out", "--to", "megatron", "--config", "a.log"], 3, "a.log"),
    "a configuration that does not fit": (["hf", "out", "--to", "megatron", "--config", "moe"], 3, "is no tensor of a Mixtral"),
}


@pytest.mark.parametrize(("words", "code", "said"), ODD.values(), ids=ODD)
def test_what_is_wrong_is_one_line_and_an_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    huggingface(tmp_path / "hf", DENSE)
    huggingface(tmp_path / "moe", EXPERTS)
    record(tmp_path / "run", DENSE, tensors(DENSE))
    convert_weights(tmp_path / "hf", tmp_path / "a.ckpt", "mindspore-ckpt")
    (tmp_path / "a.log").write_text("a line\n")
    (tmp_path / "empty").mkdir()
    done = command("convert", *words)
    assert done.returncode == code
    assert done.stderr.startswith("align_hooks: ") and done.stderr.count("\n") == 1
    assert said in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_log_is_converted_as_ever(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("not a log\n")
    done = command("convert", tmp_path / "a.log", tmp_path / "out")
    assert done.returncode == 3 and "a.log" in done.stderr


@pytest.mark.parametrize("to", ["huggingface", "megatron", "mindspore", "mindspore-ckpt"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(28, "No space left on device")], ids=["interrupted", "full"])
def test_what_ends_early_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, to: str, error: BaseException) -> None:
    source = huggingface(tmp_path / "hf", DENSE)
    cast = mock.Mock(wraps=converting.cast, side_effect=[*[mock.DEFAULT] * 6, error])
    monkeypatch.setattr(converting, "cast", cast)
    with pytest.raises((KeyboardInterrupt, AlignHooksError)):
        convert_weights(source, tmp_path / "below" / "out.ckpt", to, ConversionOptions("bfloat16"))
    assert cast.call_count == 7
    assert list((tmp_path / "below").iterdir()) == []


def test_a_family_is_known_by_its_name_in_hugging_face() -> None:
    """And by nothing else, so every family of the registry must obey the rule."""
    assert {model_type(family) for family in FAMILIES} - set(CONFIG_MAPPING) <= {"minimax_m2"}  # a model of transformers 5
    assert config(Sizes())["model_type"] == "llama"
