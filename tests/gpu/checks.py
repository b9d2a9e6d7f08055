"""What a device must show, a function each, in the order of ``run.py``: a generator of outcomes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import align_hooks
from align_hooks import open_run
from align_hooks.comparison.verdict import Verdict
from gpu.trainings import SCRIPTS, WIDE, Trained, Trainings
from real import frameworks
from real.frameworks import EVERYTHING, LLAMA, fed_by
from real.test_graphs import CASES, GRAPHS, RECORDED
from real.test_noninterference import DROPOUT

SHARDED = ("--use-distributed-optimizer", "--overlap-grad-reduce", "--overlap-param-gather")
MODELS: Mapping[str, tuple[str, Sequence[str]]] = {
    "Llama, fp32": (LLAMA, ()),
    "Llama, bf16, distributed optimizer, overlapped": (LLAMA, ("--bf16", *SHARDED)),
    "Llama, fp16": (LLAMA, ("--fp16", "--initial-loss-scale", "65536")),
    "Qwen3-MoE, bf16": ("qwen3_moe", ("--bf16",)),
    "DeepSeek-V3 with multi-token prediction, bf16": ("deepseek_v3_mtp", ("--bf16",)),
}
"""Name to family and flags."""
ALL: Mapping[str, object] = {"RUN": "run", **EVERYTHING}
RECORDINGS: Mapping[str, Mapping[str, object]] = {
    "scalars": {"RUN": "run"},
    "norms": {"RUN": "run", "LOCAL_NORMS": "all"},
    "norms and sketches": {"RUN": "run", "LOCAL_NORMS": "all", "SKETCHES": "all"},
    "batches": {"RUN": "run", "BATCHES": "all"},
    "gradients": {"RUN": "run", "GRADIENTS": "all"},
    "weights": {"RUN": "run", "WEIGHTS": "all"},
    "optimizer state": {"RUN": "run", "OPTIMIZER_STATE": "all"},
    "activations": {"RUN": "run", "ACTIVATIONS": "all"},
}
AT_MOST = {"scalars": 1, "norms": 1, "norms and sketches": 1}
"""Waits of ours in a step, where that is promised."""
RANKS = {
    "TP2 with sequence parallelism": ("--tensor-model-parallel-size", "2", "--sequence-parallel"),
    "PP2": ("--pipeline-model-parallel-size", "2"),
    "DP2 with the distributed optimizer": SHARDED,
}


@dataclass(frozen=True)
class Outcome:
    """What one case of a check showed."""

    case: str
    ok: bool | None
    """None where the framework itself does not run the case."""
    words: str


Check: TypeAlias = Callable[[Trainings], Iterator[Outcome]]


def failed(case: str, trained: Trained) -> Outcome:
    """Return the outcome of a training that should have succeeded."""
    return Outcome(case, False, trained.error)


def untrained(case: str, plain: Trained) -> Outcome:
    """Return the outcome of a case that the framework does not train without us."""
    return Outcome(case, None, f"Megatron-LM itself: {plain.error}")


def together(**made: Callable[[], Trained]) -> dict[str, Trained]:
    """Return trainings by name, made at the same time."""
    with ThreadPoolExecutor(len(made)) as pool:
        futures: dict[str, Future[Trained]] = {name: pool.submit(make) for name, make in made.items()}
        return {name: future.result() for name, future in futures.items()}


def each(cases: Sequence[str], of: Callable[[str], Outcome]) -> Iterator[Outcome]:
    """Yield the outcomes of cases, which run at the same time, in their order."""
    with ThreadPoolExecutor(len(cases)) as pool:
        yield from pool.map(of, cases)


def unequal(one: Trained, other: Trained) -> list[str]:
    """Return the names of losses and final tensors that differ in a bit, of all ranks."""
    parted, losses = [], 0
    assert one.witnesses and len(one.witnesses) == len(other.witnesses)
    for left_file, right_file in zip(one.witnesses, other.witnesses, strict=True):
        with np.load(left_file) as left, np.load(right_file) as right:
            assert left.files == right.files and len(left.files) > 5
            losses += left["losses"].size  # a first stage of a pipeline has none
            parted += [name for name in left.files if left[name].tobytes() != right[name].tobytes()]
    assert losses
    return parted


def beside(case: str, reference: Trained, candidate: Trained, words: str = "") -> Outcome:
    """Return the verdict of a comparison, with the stage that comes nearest to its limit."""
    judged = align_hooks.compare(reference.run, candidate.run)
    ratios = [(finding.limit_ratio, stage.name) for stage in judged.stages for finding in stage.findings]
    ratio, stage = max(ratios, default=(0.0, "no stage"))
    return Outcome(
        case, judged.verdict is Verdict.ALIGNED, f"{words}{judged.verdict.value[0]}; nearest to its limit: {stage}, {ratio:.2g} of it"
    )


def starts(trainings: Trainings) -> Iterator[Outcome]:
    """The framework trains here without us, by which everything below is judged, and attached by ``align-hooks run`` under torchrun."""
    alone = trainings.train("alone", launcher=() if trainings.device == "cuda" else ("-m", "align_hooks.torch_side"), flags=("--bf16",))
    yield Outcome("nothing of ours", True, "3 steps") if alone.code == 0 else untrained("nothing of ours", alone)

    def launcher() -> Sequence[str]:
        port = str(frameworks.free_port())
        return ("-m", "align_hooks", "run", "--", "torchrun", "--nproc-per-node", "1", "--master-port", port)

    case = "align-hooks run -- torchrun"
    under = trainings.train("torchrun", launcher=launcher, environment={"RANK": "", "WORLD_SIZE": ""}, RUN="run")
    steps = open_run(under.run).steps if under.code == 0 else []
    yield Outcome(case, len(steps) == frameworks.STEPS, f"{len(steps)} steps recorded") if steps else failed(case, under)


def bitwise(trainings: Trainings) -> Iterator[Outcome]:
    """With everything recorded, losses and final parameters are those of a run without us; two such runs tell the device's own noise."""

    def case(name: str) -> Outcome:
        model, deterministic = name.removesuffix(", deterministic"), name.endswith(", deterministic")
        family, flags = MODELS[model]
        own: dict[str, Any] = {"family": family, "flags": flags, "change": DROPOUT, **({"DETERMINISTIC": 1} if deterministic else {})}
        made = together(
            plain=lambda: trainings.witnessed(f"{name}/plain", **own),
            again=lambda: trainings.witnessed(f"{name}/again", **own),
            recorded=lambda: trainings.witnessed(f"{name}/recorded", **own, **ALL),
        )
        plain, again, recorded = (made[key] for key in ("plain", "again", "recorded"))
        if plain.code or again.code:
            return untrained(name, plain if plain.code else again)
        if recorded.code:
            return failed(name, recorded)
        if noise := unequal(plain, again):
            return Outcome(name, None, f"two runs without us differ: {len(noise)} arrays, {noise[0]}")
        parted = unequal(plain, recorded)
        with np.load(plain.witnesses[0]) as arrays:
            count = len(arrays.files) - 1
        return Outcome(
            name, not parted, f"{parted[0]} and {len(parted) - 1} more differ" if parted else f"{count} tensors and all losses equal"
        )

    yield from each([*MODELS, "Llama, fp32, deterministic", "Qwen3-MoE, bf16, deterministic"], case)


def itself(trainings: Trainings) -> Iterator[Outcome]:
    """A record agrees with itself: norms with the framework's, sketches with tensors, counts with batches, bytes with their digests."""

    def case(name: str) -> Outcome:
        run = trainings.folder(f"{name}/recorded") / "run"
        if not run.exists():
            return Outcome(name, None, "no record, see above")
        shown = frameworks.python(trainings.where, ["-m", "align_hooks", "show", str(run), "--verify"], {}, {"COLUMNS": "1000"})
        clean = [line.strip() for line in shown.output.splitlines() if "self-check:" in line]
        return Outcome(name, shown.code == 0, (clean or shown.output.strip().splitlines() or [""])[-1][:300])

    yield from each(list(MODELS), case)


def waits(trainings: Trainings) -> Iterator[Outcome]:
    """How often a selected step lets the host wait for the device, and which line of ours does."""

    def counted(name: str, variables: Mapping[str, object]) -> Trained:
        script = SCRIPTS / "waiting_pretrain.py"
        launcher = ("-m", "align_hooks.torch_side", str(script))
        flags = ("--bf16", *SHARDED, "--train-iters", "6")
        return trainings.train(
            f"waits/{name}", launcher=launcher, flags=flags, change=WIDE, environment={"WAITS": "waits.json"}, **variables
        )

    plain = counted("plain", {})
    if plain.code:
        yield untrained("all", plain)
        return
    peak = json.loads((plain.where / "waits.json").read_text())["peak"]

    def case(name: str) -> Outcome:
        trained = counted(name, RECORDINGS[name])
        if trained.code:
            return failed(name, trained)
        seen = json.loads((trained.where / "waits.json").read_text())
        lines = {line: count for line, count in seen["waits"].get("4", {}).items() if line != "the framework"}
        most = AT_MOST.get(name)
        more = f"; peak memory {seen['peak'] / 1e6:.0f} MB, {peak / 1e6:.0f} without us" if peak else ""
        said = ", ".join(f"{line} {count}" for line, count in sorted(lines.items(), key=lambda item: -item[1])[:6])
        return Outcome(name, most is None or sum(lines.values()) <= most, f"{sum(lines.values())} a step ({said or 'none'}){more}")

    yield from each(list(RECORDINGS), case)


def devices_agree(trainings: Trainings) -> Iterator[Outcome]:
    """A record of the device, replayed on the CPU, and the other way round: all stages *same*."""

    def case(name: str) -> Outcome:
        family, flags = MODELS[name.partition(" → ")[2]]
        devices = (trainings.device, "cpu") if name.startswith("device") else ("cpu", trainings.device)
        reference = trainings.train(f"{name}/reference", family=family, flags=flags, on=devices[0], **ALL)
        if reference.code:
            return failed(name, reference)
        candidate = trainings.train(f"{name}/candidate", family=family, flags=flags, on=devices[1], **ALL, **fed_by(reference.run))
        if candidate.code:
            return failed(name, candidate)
        return beside(name, reference, candidate)

    models = [name for name in MODELS if "fp16" not in name]
    yield from each([f"{way} → {name}" for name in models for way in ("device", "CPU")], case)


def graphs(trainings: Trainings) -> Iterator[Outcome]:
    """Under CUDA graphs a record is right or refused by name."""

    def case(name: str) -> Outcome:
        eager: dict[str, Any] = {"family": name, "flags": CASES[name], "change": {"--train-iters": "5"}}
        own = {**eager, "flags": (*CASES[name], *GRAPHS)}
        asked = {"RUN": "run", **RECORDED}
        made = together(
            plain=lambda: trainings.witnessed(f"graphs/{name}/plain", **own),
            recorded=lambda: trainings.witnessed(f"graphs/{name}/recorded", **own, **asked),
            eager=lambda: trainings.witnessed(f"graphs/{name}/eager", **eager, **asked),
        )
        if made["plain"].code:
            return untrained(name, made["plain"])
        if made["recorded"].code or made["eager"].code:
            return failed(name, made["recorded"] if made["recorded"].code else made["eager"])
        if parted := unequal(made["plain"], made["recorded"]):
            return Outcome(name, False, f"{parted[0]} differs from the run without us")
        return beside(name, made["eager"], made["recorded"], "as without us to the bit, and with eager steps ")

    yield from each(list(CASES), case)
    refused = trainings.train("graphs/refused", flags=GRAPHS, RUN="run", ACTIVATIONS=2)
    yield Outcome("activations are refused", refused.code != 0 and GRAPHS[0] in refused.ours, refused.ours.splitlines()[-1][:200])


def survives(trainings: Trainings) -> Iterator[Outcome]:
    """Training goes on where a call of ours fails, and where the device has no memory for us: losses and parameters to the bit."""

    def short(case: str) -> Outcome:
        own: dict[str, Any] = {"script": SCRIPTS / "short_of_memory.py", "change": {**WIDE, "--train-iters": "6"}, "flags": ("--bf16",)}
        own["environment"] = {"SHORT_FROM": "2"}
        late = {"RUN": "run", **dict.fromkeys(("GRADIENTS", "WEIGHTS", "OPTIMIZER_STATE", "LOCAL_NORMS", "SKETCHES", "ACTIVATIONS"), "3-5")}
        made = together(
            plain=lambda: trainings.witnessed("short/plain", **own), recorded=lambda: trainings.witnessed("short/recorded", **own, **late)
        )
        if made["plain"].code:
            return untrained(case, made["plain"])
        if made["recorded"].code not in (0, 3):
            return failed(case, made["recorded"])
        parted = unequal(made["plain"], made["recorded"])
        said = [line for line in made["recorded"].ours.splitlines() if "memory" in line or "stopped" in line]
        return Outcome(
            case,
            not parted and (bool(said) or trainings.device == "cpu"),
            f"{parted[:1] or 'equal to the bit'}; {(said or ['no word of memory'])[0][:250]}",
        )

    def planted(case: str) -> Outcome:
        steps = "60"
        own: dict[str, Any] = {"change": {**DROPOUT, "--train-iters": steps}}
        failing = {"PLANTED": "planted.json", "PLANTED_TOGETHER": "1", "PLANTED_REFUSED": "1"}
        launcher = ("-m", "align_hooks.torch_side", str(frameworks.SCRIPTS / "planted_calls.py"))
        witness = {"WITNESS": "witness_{rank}.npz", "WITNESS_STEPS": steps}
        made = together(
            plain=lambda: trainings.witnessed("planted/plain", **own, environment=witness),
            recorded=lambda: trainings.witnessed("planted/recorded", **own, launcher=launcher, environment=witness | failing, **ALL),
        )
        if made["plain"].code:
            return untrained(case, made["plain"])
        if made["recorded"].code not in (0, 3):
            return failed(case, made["recorded"])
        tried = json.loads((made["recorded"].where / "planted.json").read_text())["tried"]
        return Outcome(case, not unequal(made["plain"], made["recorded"]) and tried >= 150, f"{tried} calls of ours failed, each once")

    yield from each(["no memory left for us", "each call fails"], lambda case: (short if "memory" in case else planted)(case))


def ordered(trainings: Trainings) -> Iterator[Outcome]:
    """What is read stands behind the kernel that writes it: records are the same where the host waits for each kernel, and where nothing
    orders streams but events."""
    ways = {
        "the host waits for each kernel": {"CUDA_LAUNCH_BLOCKING": "1"},
        "as it is": {},
        "eight connections, no cache of memory": {"CUDA_DEVICE_MAX_CONNECTIONS": "8", "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"},
    }
    flags = ("--bf16", *SHARDED)

    def made(way: str) -> Trained:
        return trainings.train(f"ordered/{way}", change=WIDE, flags=flags, environment=ways[way], DETERMINISTIC=1, **ALL)

    with ThreadPoolExecutor(len(ways)) as pool:
        blocking, *others = pool.map(made, ways)
    for way, trained in zip([*ways][1:], others, strict=True):
        if blocking.code or trained.code:
            yield failed(way, blocking if blocking.code else trained)
            continue
        count, parted = differing(blocking.run, trained.run)
        yield Outcome(
            way, not parted and count > 100, f"{count} tensors and sums equal" if not parted else f"{len(parted)} differ: {parted[0]}"
        )


def differing(one: Path, other: Path) -> tuple[int, list[str]]:
    """Return how many tensors and sums two records hold, and the names of those that differ in a bit."""
    runs = [open_run(path) for path in (one, other)]
    count, parted = 0, []
    for step in range(frameworks.STEPS):
        kinds = {
            "gradient": [run.gradients(step) for run in runs],
            "weight": [run.weights(step) for run in runs],
            "norm": [run.local_norms(step) for run in runs],
        }
        for kind, (left, right) in kinds.items():
            assert list(left) == list(right)
            for name in left:
                count += 1
                if np.asarray(left[name]).tobytes() != np.asarray(right[name]).tobytes():
                    parted.append(f"{kind} {name} of step {step}")
    return count, parted


def ranks(trainings: Trainings) -> Iterator[Outcome]:
    """Two ranks on one device, by gloo: cut as one rank is not, recorded to the bit, and *aligned* with it."""
    reference = trainings.train("ranks/one", **ALL)

    def case(name: str) -> Outcome:
        own: dict[str, Any] = {"flags": RANKS[name], "ranks": 2, **fed_by(reference.run)}
        made = together(
            plain=lambda: trainings.witnessed(f"ranks/{name}/plain", **own),
            recorded=lambda: trainings.witnessed(f"ranks/{name}/run", **own, **ALL),
        )
        if made["plain"].code:
            return untrained(name, made["plain"])
        if made["recorded"].code:
            return failed(name, made["recorded"])
        if parted := unequal(made["plain"], made["recorded"]):
            return Outcome(name, False, f"{parted[0]} differs from the run without us")
        return beside(name, reference, made["recorded"], "as without us to the bit, and with one rank ")

    if reference.code:
        yield failed("one rank", reference)
    else:
        yield from each(list(RANKS), case)


CHECKS: Mapping[str, Check] = {
    "it starts": starts,
    "nothing interferes": bitwise,
    "a record agrees with itself": itself,
    "the host waits": waits,
    "CPU and device agree": devices_agree,
    "CUDA graphs": graphs,
    "training survives": survives,
    "reads are ordered": ordered,
    "two ranks": ranks,
}
