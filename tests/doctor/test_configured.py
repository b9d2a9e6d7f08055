"""What the doctor says of a configuration: what the run itself would refuse, and models that have no canonical names."""

from pathlib import Path

import pytest

from align_hooks.checklist.family_match import elsewhere, odd
from align_hooks.configuration.source import read
from align_hooks.doctor.examination import side_of
from align_hooks.doctor.fit import own_names, refused
from align_hooks.messages import message, rendered, terms
from align_hooks.ms_side.refusals import NOT_ON_A_CPU, REHEARSAL, REHEARSAL_OF_OLDER, rehearsal
from synthetic import changed, settings
from worded import words

LAUNCH = Path(__file__).parents[2] / "launch"
VERSIONS = {"megatron-core": "0.19.2", "mindspore": "2.9.0"}


def refusals(name: str, *changes: tuple[str, str], where: Path, **switches: object) -> list[str]:
    """What is refused of ``launch/<name>`` with some of its text replaced, and more behind it where nothing is replaced."""
    configuration = read(changed(name, *changes, where=where), {})
    return list(refused(side_of(configuration), configuration, settings(**switches), VERSIONS))


@pytest.mark.parametrize("name", ["llama.args", "llama.yaml"])
def test_what_can_be_run_is_not_refused(name: str, tmp_path: Path) -> None:
    assert refusals(name, where=tmp_path, device="cpu", run="run", deterministic=1, learning_rate="1e-3", weights="all") == []


SPARSE = rendered(terms([message("canonical_value.layers_dense", count=1), message("canonical_value.layers_with_experts", count=1)]))
MEGATRON: dict[str, tuple[str, dict[str, object], str]] = {
    "not deterministic": ("--cross-entropy-loss-fusion", {"deterministic": 1}, "--cross-entropy-loss-fusion is not deterministic"),
    "only on an accelerator": ("--fp8-format hybrid", {"device": "cpu"}, "--fp8-format only an accelerator can follow"),
    "unread": ("--optimizer-cpu-offload", {"run": "run"}, "kept with --optimizer-cpu-offload"),
    "legacy": ("--use-legacy-models", {"run": "run"}, "--use-legacy-models builds no megatron.core model"),
    "hidden": ("--use-precision-aware-optimizer", {"run": "run", "weights": "0"}, "where ALIGN_HOOKS_WEIGHTS cannot reach"),
    "points in a graph": ("--enable-cuda-graph", {"run": "run", "activations": "0"}, "so that ALIGN_HOOKS_ACTIVATIONS would see"),
    "experts in a graph": ("--external-cuda-graph", {"run": "run", "routing": "0"}, "--external-cuda-graph replays layers without Python"),
    "both in a graph": (
        *("--cuda-graph-impl transformer_engine --cuda-graph-scope attn", {"teacher": "other", "replay_routing": "other"}),
        "ALIGN_HOOKS_TEACHER and ALIGN_HOOKS_REPLAY_ROUTING would see",
    ),
    "a graph on a CPU": ("--cuda-graph-impl local", {"device": "cpu", "run": "run", "activations": "0"}, "only an accelerator can follow"),
    "a graph of all": ("--cuda-graph-modules full_iteration", {"run": "run"}, "a CUDA graph of the whole iteration"),
    "weights in fp8": ("--fp8-format hybrid --fp8-param-gather", {"load_weights": "other"}, "--fp8-param-gather: ALIGN_HOOKS_LOAD_WEIGHTS"),
    "weights in fp4": ("--fp4-format e2m1 --fp4-param-gather", {"load_weights": "other"}, "--fp4-param-gather: ALIGN_HOOKS_LOAD_WEIGHTS"),
    "sinks by local layers": (
        *("--softmax-type learnable --tensor-model-parallel-size 2", {"device": "cpu"}),
        "--softmax-type learnable under tensor parallelism with --transformer-impl local is wrong in Megatron itself",
    ),
    "latent attention by local layers": (
        *("--multi-latent-attention --tensor-model-parallel-size 2", {"device": "cpu"}),
        "--multi-latent-attention under tensor parallelism with --transformer-impl local is wrong in Megatron itself",
    ),
    "packed on ranks of CPUs": (
        *("--dataloader-inter-document-masking --context-parallel-size 2", {"device": "cpu", "run": "run"}),
        "packed samples are attended to on one context-parallel rank",
    ),
    "packed, cut by document": (
        *("--sft --context-parallel-size 2", {"run": "run", "batches": "0"}),
        "unset ALIGN_HOOKS_BATCHES, everything else is recorded",
    ),
    "packed, rows cut": (
        *("--sft --sequence-parallel --tensor-model-parallel-size 2", {"run": "run", "activations": "0"}),
        "use --micro-batch-size 1, or unset ALIGN_HOOKS_ACTIVATIONS",
    ),
    "packed, latent": ("--sft --multi-latent-attention", {"run": "run", "teacher": "other"}, "ALIGN_HOOKS_TEACHER was not tried with"),
}


@pytest.mark.parametrize("case", MEGATRON)
def test_megatron(case: str, tmp_path: Path) -> None:
    flags, switches, part = MEGATRON[case]
    line, *unopened = refusals("llama.args", ("", f"{flags}\n"), where=tmp_path, **switches)
    assert part in line
    assert not unopened or "other" in switches.values()  # a run that cannot be opened is said too


@pytest.mark.parametrize("flags", ["--enable-cuda-graph", "--cuda-graph-impl local --cuda-graph-scope full_iteration_inference"])
def test_what_is_outside_of_a_graph_is_recorded_beside_one(flags: str, tmp_path: Path) -> None:
    asked = dict.fromkeys(("batches", "local_norms", "gradients", "weights", "optimizer_state", "sketches"), "all")
    assert refusals("llama.args", ("", f"{flags}\n"), where=tmp_path, run="run", **asked) == []
    assert refusals("llama.args", ("", "--cuda-graph-impl none\n"), where=tmp_path, run="run", activations="0") == []


CPU: dict[str, object] = {"device": "cpu"}
FIXED_RATE: dict[str, object] = {"run": "run", "learning_rate": "1e-3"}
NOT_REFUSED: dict[str, tuple[str, dict[str, object]]] = {
    "only fast: a rehearsal goes without, to be deterministic": (
        "--cross-entropy-loss-fusion --tp-comm-overlap",
        CPU | {"deterministic": 1},
    ),
    "another loss": ("--cross-entropy-loss-fusion", CPU | {"run": "run"}),
    "another dispatcher": ("--moe-token-dispatcher-type flex --moe-enable-deepep --delay-wgrad-compute", CPU | {"run": "run"}),
    "recomputation": ("--recompute-granularity selective --recompute-modules moe_act layernorm core_attn", CPU | {"run": "run"}),
    "a flag without its value": ("--load", FIXED_RATE),
    "no number": ("--num-distributed-optimizer-instances two", FIXED_RATE),
    "a list for a number": ("--context-parallel-size [1,2]", FIXED_RATE),
    "no training": ("--skip-train", FIXED_RATE),
    "a Mixtral": ("--num-experts 4 --moe-router-topk 2", {"run": "run"}),
    "what no family has, where nothing is asked for": ("--rotary-interleaved", {}),
}


@pytest.mark.parametrize("case", NOT_REFUSED)
def test_what_megatron_or_a_rehearsal_can_do_is_not_refused(case: str, tmp_path: Path) -> None:
    flags, switches = NOT_REFUSED[case]
    assert refusals("llama.args", ("", f"{flags}\n"), where=tmp_path, **switches) == []


@pytest.mark.parametrize("end", ["$MODEL_ARGS", "--yaml-cfg model.yaml", "--use-checkpoint-args --load 7"])
def test_what_may_be_said_elsewhere_is_not_held_against_defaults(end: str, tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text(f"torchrun pretrain_gpt.py --num-layers 2 --hidden-size 64 --lr 1e-3 --rotary-interleaved {end}\n")
    configuration = read(str(script), {})
    assert list(refused("torch", configuration, settings(run="run", learning_rate=0), VERSIONS)) == []
    assert list(map(rendered, odd(configuration))) == ["rotary_interleaved is True (train.sh:1 --rotary-interleaved)"]
    assert elsewhere(configuration)


FP32 = "    compute_dtype: 'float32'"
MINDFORMERS: dict[str, tuple[str, str, dict[str, object], str]] = {
    "sink mode": ("sink_mode: False", "sink_mode: True", {"run": "run"}, "set sink_mode: False in the YAML"),
    "a newer model without a graph": ("context:\n  mode: 0", "use_legacy: False\ncontext:\n  mode: 1", {"run": "run"}, "set mode: 0"),
    "bfloat16 on a CPU": (FP32, "    compute_dtype: bfloat16", CPU, "set compute_dtype: float32"),
    "a compressed mask of documents on a CPU": (
        FP32,
        f"{FP32}\n    use_eod_attn_mask_compression: True",
        CPU,
        "set create_compressed_eod_mask: False",
    ),
}


@pytest.mark.parametrize("case", MINDFORMERS)
def test_mindformers(case: str, tmp_path: Path) -> None:
    old, new, switches, part = MINDFORMERS[case]
    assert part in " ".join(refusals("llama.yaml", (old, new), where=tmp_path, **switches))


@pytest.mark.parametrize("key", NOT_ON_A_CPU)
def test_a_rehearsal_switches_off_what_a_cpu_lacks(key: str) -> None:
    on, off = ({key: value}.get for value in (True, False))
    assert rehearsal(on, newer=True) == REHEARSAL | {key: False}
    assert rehearsal(off, newer=True) == REHEARSAL
    assert rehearsal(off, newer=False) == REHEARSAL | REHEARSAL_OF_OLDER


EXPERTS = f"{words('row.layers_with_experts')} is {SPARSE}"
SIGMOID = f"{words('row.score_function')} is sigmoid"
NEWER = ("    type: LlamaConfig\n", "    model_type: glm4\nuse_legacy: False\nother:\n  x:\n")
OF_NO_FAMILY: dict[str, tuple[str, str, str, str]] = {
    "other positions": ("llama.args", "", "--rotary-interleaved\n", "rotary_interleaved is True (llama.args:"),
    "another mixture": ("llama.args", "", "--num-experts 4 --moe-router-score-function sigmoid\n", SIGMOID),
    "experts in some layers": ("llama.args", "", "--num-experts 4 --moe-layer-freq [0,1]\n", EXPERTS),
    "another model": ("llama.yaml", "type: LlamaForCausalLM", "type: TelechatForCausalLM", "model.arch.type is TelechatForCausalLM"),
    "another newer model": ("llama.yaml", *NEWER, "model_type is glm4, which no family has"),
}


@pytest.mark.parametrize("case", OF_NO_FAMILY)
def test_a_model_of_no_family_is_no_reason_to_refuse(case: str, tmp_path: Path) -> None:
    name, old, new, part = OF_NO_FAMILY[case]
    assert refusals(name, (old, new), where=tmp_path, run="run") == []
    told = own_names(read(changed(name, (old, new), where=tmp_path), {}), settings(run="run"))
    assert told is not None and part in told


@pytest.mark.parametrize("name", ["llama", *(path.stem for path in sorted((LAUNCH / "families").glob("*.yaml")))])
@pytest.mark.parametrize("kind", ["args", "yaml"])
def test_a_model_of_a_family_is_known_by_its_configuration(name: str, kind: str) -> None:
    path = LAUNCH / ("" if name == "llama" else "families") / f"{name}.{kind}"
    assert odd(read(str(path), {})) == []


def test_what_does_not_train_is_not_refused(tmp_path: Path) -> None:
    predicting = ("run_mode: 'train'", "run_mode: 'predict'"), ("sink_mode: False", "sink_mode: True")
    assert refusals("llama.yaml", *predicting, where=tmp_path, run="run") == []
