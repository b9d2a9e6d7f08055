"""Small runs written with the real Writer: honest by default, and plain data that a test bends before it is written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from align_hooks.comparison.metrics.measures import distances, ratio
from align_hooks.names.blocks import Blocks
from align_hooks.names.fused import Fused, Piece
from align_hooks.names.points import GRADIENT
from align_hooks.process.ranks import Launch
from align_hooks.quantities.activations import ACTIVATIONS, WHOLE
from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.weights import WEIGHTS
from align_hooks.record.format.ending import HowEnded
from align_hooks.record.format.norms import squared_sum
from align_hooks.record.format.shard import Shard
from align_hooks.record.format.sketch import sketch
from align_hooks.record.read.activations import column_signs, measured, row_signs
from align_hooks.record.write.step_files import StepActivations, StepBatch, StepChoices
from align_hooks.record.write.writer import Writer
from align_hooks.settings import PREFIX, Settings

LAUNCH = Path(__file__).parents[1] / "launch"
Array = np.ndarray
Row = dict[str, float | None]
SHAPES = {
    "model.embed_tokens.weight": (10, 4),
    "model.layers.0.self_attn.q_proj.weight": (6, 4),
    "model.norm.weight": (4,),
    "lm_head.weight": (10, 4),
}
NAMES = list(SHAPES)
STEPS, ROWS, SEQUENCE, VOCABULARY = 3, 4, 5, 10
EXPERTS, ROUTERS = 4, ("model.layers.0.mlp.gate", "model.layers.1.mlp.gate")
EVERYTHING = {"batches": "all", "local_norms": "all", "gradients": "all", "weights": "all", "optimizer_state": "all"}
CONFIG = {"model_type": "llama", "hidden_size": 4}
CAUSAL = ~np.tri(SEQUENCE, dtype=bool)[None, None]


def fused(native: str, shapes: Mapping[str, tuple[int, ...]], blocks: Blocks) -> Fused:
    """A native parameter that one rank holds whole, of pieces of these shapes."""
    return Fused(native, tuple(Piece(name, shape, tuple((0, size) for size in shape)) for name, shape in shapes.items()), blocks)


def job(rank: int = 0, world_size: int = 1, name: str = "one") -> Launch:
    return Launch(rank, world_size, name, "host")


def settings(**switches: object) -> Settings:
    """What variables ask for, named without their prefix, in lower case."""
    return Settings.from_environment({PREFIX + name.upper(): str(value) for name, value in switches.items()})


def begun(path: Path, launch: Launch | None = None, *, side: str = "torch", **switches: str) -> Writer:
    """A writer that has claimed its rank of ``path``; ``switches`` are those of :func:`settings`."""
    writer = Writer(path, launch or job(), side, settings(**{"run": str(path)} | switches))
    writer.begin()
    return writer


def described(path: Path, steps: range, **switches: str) -> Writer:
    """A writer that has begun and is about to make ``steps``: of :class:`Synthetic`'s tensors, so that it may go on with such a run."""
    writer = begun(path, **switches)
    writer.describe(place={"dp": 0, "tp": 0, "pp": 0}, shards=whole_shards(), facts={}, steps=steps)
    return writer


def finished(writer: Writer, steps: Iterable[int], **changes: float | None) -> None:
    """Write the rows of ``steps``, and end as a job that made all of them."""
    for step in steps:
        writer.scalars(row(step, **changes))
    writer.finish(HowEnded("finished"), hooks={})


def whole_shards(shapes: Mapping[str, tuple[int, ...]] = SHAPES, dtype: str = "float32") -> list[Shard]:
    """The parameter table of a rank that holds these tensors whole; no gradient moves an expert's bias."""
    return [Shard(name, shape, name, dtype, trainable=not name.endswith("e_score_correction_bias")) for name, shape in shapes.items()]


def row(step: int, **changes: float | None) -> Row:
    """A row of scalars as both sides write it."""
    loss, norm = 9.0 - 0.1 * step, 1.5 + 0.1 * step
    honest = {"step": step, "loss": loss, "objective_loss": loss, "valid_tokens": ROWS * SEQUENCE, "consumed_samples": ROWS * (step + 1)}
    honest |= {"grad_norm": norm, "clip_coefficient": 1 / norm, "learning_rate": 1e-3, "loss_scale": 1.0, "skipped": False, "seconds": 0.5}
    return honest | changes


def tensors(seed: int, shapes: dict[str, tuple[int, ...]] = SHAPES) -> dict[str, Array]:
    """Seeded fp32 tensors by canonical name."""
    random = np.random.default_rng(seed)
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def batch(seed: int, rows: int = ROWS, sequence: int = SEQUENCE, vocabulary: int = VOCABULARY) -> dict[str, Array]:
    """One consumed batch: tokens, labels shifted by one, a full loss mask, position ids."""
    ids = np.random.default_rng(seed).integers(0, vocabulary, (rows, sequence + 1))
    return {
        "tokens": ids[:, :-1].copy(),
        "labels": ids[:, 1:].copy(),
        "loss_mask": np.ones((rows, sequence), np.float32),
        "position_ids": np.tile(np.arange(sequence), (rows, 1)),
        "token_losses": np.random.default_rng(seed + 1000).uniform(8, 10, (rows, sequence)).astype(np.float32),
    }


def optimizer(names: Sequence[str] = NAMES) -> dict[str, object]:
    """What run.json keeps of an AdamW with two groups."""
    common = {"learning_rate": 1e-3, "betas": [0.9, 0.95], "eps": 1e-8, "bias_correction": True}
    decayed = [name for name in names if name != "model.norm.weight"]
    groups = [common | {"weight_decay": 0.1, "parameters": decayed}, common | {"weight_decay": 0.0, "parameters": ["model.norm.weight"]}]
    return {"type": "AdamW", "decoupled_weight_decay": True, "clip_grad": 1.0, "loss_scale": 1.0, "groups": groups}


def adamw(
    run: Synthetic,
    optimizer: dict[str, object],
    *,
    rate: float = 1.0,
    clip: float | None = None,
    ulps: int = 0,
    held: type = float,
    ahead: int = 0,
) -> None:
    """Make weights and moments of ``run`` what these settings make of its first weights and its gradients, all in fp32.

    Written as torch writes it and apart from what judges it. ``rate`` multiplies the learning rates in the rows, ``clip`` is
    what gradients are clipped to in place of the coefficients there; weights are rounded up to ``ulps`` off, seeded. ``held``
    is the type of betas and bias corrections: np.float32 in the kernels of Apex and Transformer Engine. ``ahead`` is added to
    the exponent of the bias correction.
    """
    random = np.random.default_rng(7)
    fp32 = np.float32
    moments = {name: {key: np.zeros(tensor.shape, fp32) for key, tensor in run.weights[0].items()} for name in ("exp_avg", "exp_avg_sq")}
    run.moments = {0: deepcopy(moments)}
    for step, scalars in enumerate(run.rows):
        run.weights[step + 1], run.moments[step + 1] = deepcopy(run.weights[step]), deepcopy(moments)
        if scalars["skipped"]:
            continue
        count = run.updates(step + 1) + ahead
        coefficient = scalars["clip_coefficient"] if clip is None else min(1.0, clip / (scalars["grad_norm"] + 1e-6))
        for group in optimizer["groups"]:
            by, beta1, beta2 = rate * scalars["learning_rate"], *map(held, group["betas"])
            corrected = group["bias_correction"] is not False
            first, second = (1 - beta1**count, 1 - beta2**count) if corrected else (1.0, 1.0)
            for name in sorted(set(group["parameters"]) & set(run.weights[0])):
                weight, gradient = run.weights[step][name], run.gradients[step][name] * fp32(coefficient)
                if optimizer["decoupled_weight_decay"]:
                    weight = weight * fp32(1 - by * group["weight_decay"])
                else:
                    gradient = gradient + fp32(group["weight_decay"]) * weight
                m, v = moments["exp_avg"][name], moments["exp_avg_sq"][name]
                m = moments["exp_avg"][name] = m + (gradient - m) * fp32(1 - beta1)
                v = moments["exp_avg_sq"][name] = v * fp32(beta2) + gradient * gradient * fp32(1 - beta2)
                moved = weight - fp32(by / first) * m / (np.sqrt(v) / fp32(math.sqrt(second)) + fp32(group["eps"]))
                off = random.integers(-ulps, ulps, moved.shape, endpoint=True).astype(fp32)
                run.weights[step + 1][name] = moved + off * np.spacing(moved)
        run.moments[step + 1] = deepcopy(moments)


@dataclass
class Synthetic:
    """A run of one rank; every field may be bent before :meth:`write`. ``ended`` None leaves the run as a kill does.

    Weights are those that its optimizer makes of its gradients; call :meth:`train` again after bending what they follow from.
    """

    settings: dict[str, str] = field(default_factory=lambda: dict(EVERYTHING))
    shapes: dict[str, tuple[int, ...]] = field(default_factory=lambda: dict(SHAPES))
    rows: list[Row] = field(default_factory=lambda: [row(step) for step in range(STEPS)])
    batches: dict[int, dict[str, Array]] = field(default_factory=lambda: {step: batch(step) for step in range(STEPS)})
    weights: dict[int, dict[str, Array]] = field(default_factory=lambda: {0: tensors(100)})
    gradients: dict[int, dict[str, Array]] = field(default_factory=lambda: {step: tensors(200 + step) for step in range(STEPS)})
    norms: dict[int, dict[str, float]] = field(default_factory=dict)
    moments: dict[int, dict[str, dict[str, Array]]] = field(default_factory=dict)
    routing: dict[int, dict[str, Array]] = field(default_factory=dict)
    activations: dict[int, dict[str, Array]] = field(default_factory=dict)
    optimizer: dict[str, object] = field(default_factory=dict)
    model: dict[str, object] = field(default_factory=lambda: dict(CONFIG))
    compute_type: str = "float32"
    products: dict[str, object] | None = None
    ended: HowEnded | None = HowEnded("finished")
    hooks: Mapping[str, object] = field(default_factory=dict)
    side: str = "torch"
    micro_batches: list[int] | None = None
    padded: int | None = None
    facts: dict[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.norms = self.norms or {
            step: {name: squared_sum(tensor) for name, tensor in tensors.items()} for step, tensors in self.gradients.items()
        }
        for scalars in self.rows:  # a run's loss is the mean of its tokens' losses
            arrays = self.batches.get(scalars["step"], {})
            if "token_losses" in arrays and scalars["loss"] is not None:
                arrays["token_losses"] *= np.float32(scalars["loss"] / np.average(arrays["token_losses"], weights=arrays["loss_mask"]))
        self.optimizer = self.optimizer or optimizer(list(self.shapes))
        if list(self.weights) == [0] and len(self.gradients) == len(self.rows):
            self.train()

    def updates(self, steps: int) -> int:
        """Updates made in the first ``steps`` steps."""
        return sum(not scalars["skipped"] for scalars in self.rows[:steps])

    def train(self, **changes: float | type) -> None:
        """Update the first weights step by step as the optimizer on record does; see :func:`adamw` for ``changes``."""
        adamw(self, self.optimizer, **changes)

    def drifted(self, size: float = 1e-4) -> Synthetic:
        """An honest other side: gradients after the first, and the weights that follow from them, are apart by rounding."""
        candidate = deepcopy(self)
        random = np.random.default_rng(7)
        for step in range(1, len(candidate.gradients)):
            for name, tensor in candidate.gradients[step].items():
                candidate.gradients[step][name] = tensor * (1 + size * random.standard_normal(tensor.shape)).astype(np.float32)
        candidate.train(ulps=1)
        return candidate

    def write(self, path: Path) -> Path:
        """Write the run into ``path``."""
        writer = begun(path, side=self.side, **self.settings)
        facts = {
            "optimizer": self.optimizer,
            "model": self.model,
            "training": {"compute_type": self.compute_type, "products": self.products},
            "overrides": [],
        }
        facts |= self.facts if self.padded is None else {"padded_vocabulary": self.padded} | self.facts
        first, asked = self.rows[0]["step"] if self.rows else 0, writer.settings
        steps = range(first, first + len(self.rows))
        shards = whole_shards(self.shapes, self.compute_type)
        writer.describe(place={"dp": 0, "tp": 0, "pp": 0}, shards=shards, facts=facts, steps=steps)

        def write_state(number: int) -> None:
            """What there is of weights and moments before the step of a number."""
            if number in self.weights and number in asked.weights:
                writer.weights(number, self.weights[number], self.model)
            if number in self.weights and number in asked.sketches:
                writer.sketches(WEIGHTS, number, sketched(self.weights[number]))
            if number in self.moments and number in asked.optimizer_state:
                writer.optimizer_state(number, self.moments[number], first + self.updates(number - first))

        write_state(first)
        for scalars in self.rows:
            step = scalars["step"]
            if step in self.batches:
                rows = self.micro_batches or [len(self.batches[step]["loss_mask"])]
                choices = self.routing.get(step, {})
                experts = {name: np.bincount(chosen[chosen >= 0], minlength=EXPERTS).tolist() for name, chosen in choices.items()}
                writer.batch(step, StepBatch(self.batches[step], rows, experts=experts))
                if step in asked.routing:
                    writer.routing(step, StepChoices(choices, rows))
            if step in asked.steps(ACTIVATIONS):
                values = self.activations.get(step, {})
                made = points_of(values, whole=bool(asked.patterns(WHOLE)), micro_batches=len(rows) if values else 1)
                writer.activations(step, StepActivations(*made))
            if step in self.gradients and step in asked.gradients:
                writer.gradients(step, self.gradients[step])
            if step in self.gradients and step in asked.sketches:
                writer.sketches(GRADIENTS, step, sketched(self.gradients[step]))
            if step in self.norms:
                squares = math.fsum(self.norms[step].values())
                norm = math.sqrt(squares) if squares >= 0 else math.nan
                taken = {"norm": norm, "same": squares, "exact": squares, "first": 0, "ranks": 1}
                writer.local_norms(step, "reduced", self.norms[step], [taken])
            write_state(step + 1)
            writer.scalars(scalars)
        if self.ended:
            writer.finish(self.ended, hooks=self.hooks)
        return path


def points_of(
    values: Mapping[str, Array], *, whole: bool = False, micro_batches: int = 1, scale: float = 1.0
) -> tuple[dict[str, Array], dict[str, Array], dict[str, object]]:
    """What one rank writes of whole values, and of gradients under the names with ``#gradient``, ``[rows, positions, width]``."""
    names = sorted({name.removesuffix(GRADIENT) for name in values})
    rows, length = next(iter(values.values())).shape[:2] if values else (0, 0)
    part = rows // micro_batches
    extents = [{"width": values[name].shape[2], "columns": [0, values[name].shape[2]], "counted": True} for name in names]

    def numbers(value: Array, first: int) -> Array:
        where = (np.arange(first, first + part)[:, None] * length + np.arange(length)).reshape(-1)
        return measured(value[first : first + part].reshape(-1, value.shape[2]), row_signs(where), column_signs((0, value.shape[2])))

    sums = {name: np.stack([numbers(value, index * part) for index in range(micro_batches)]) for name, value in values.items()}
    facts: dict[str, object] = {"rows": [part] * micro_batches, "length": length, "extents": extents, "scale": scale}
    facts |= {"extent_of": {name: index for index, name in enumerate(names)}, "by_tokens": False}
    return sums, {name: value.astype(np.float32) for name, value in values.items()} if whole else {}, facts


def sketched(tensors: Mapping[str, Array]) -> dict[str, list[float]]:
    """Sketches of whole tensors."""
    return {name: sketch(tensor, Shard(name, tensor.shape, name, "float32")).tolist() for name, tensor in tensors.items()}


def grown(shapes: dict[str, tuple[int, ...]]) -> Synthetic:
    """A run of other tensors than the usual ones."""
    gradients = {step: tensors(200 + step, shapes) for step in range(STEPS)}
    return Synthetic(shapes=shapes, weights={0: tensors(100, shapes)}, gradients=gradients)


def scalars_only(losses: Sequence[float | None] = (9.0, 8.9, 8.8)) -> Synthetic:
    """A run that recorded nothing but its rows."""
    rows = [row(step, loss=loss, objective_loss=loss) for step, loss in enumerate(losses)]
    return Synthetic(settings={}, rows=rows, batches={}, weights={}, gradients={}, norms={})


def by_hand(path: Path, steps: Sequence[int] = (0, 1), ranks: int = 1, mask_type: type = bool, **sizes: int) -> Path:
    """A directory made with the guide's own snippet, which saves four arrays and nothing else; ``sizes`` are those of :func:`batch`."""
    for step in steps:
        for rank in range(ranks):
            arrays = batch(10 * step + rank, **sizes)
            causal = ~np.tri(arrays["tokens"].shape[1], dtype=bool)[None, None]
            saved = {name: arrays[name] for name in ("tokens", "labels", "loss_mask")} | {"attention_mask": causal.astype(mask_type)}
            save_by_hand(path, step, saved, rank)
    return path


def save_by_hand(path: Path, step: int, arrays: Mapping[str, Array], rank: int = 0) -> None:
    """Save one batch as the guide's snippet does."""
    place = path / f"step_{step}" / f"rank_{rank}"
    place.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(place / f"{name}.npy", array)


def norm(tensor: Array) -> float:
    """The norm of a tensor, in fp64."""
    return math.sqrt(float(np.square(tensor, dtype=np.float64).sum()))


def relative_error(reference: Array, candidate: Array) -> float:
    """Relative Frobenius error; NaN where either holds NaN or infinity, 0 where both are zero, infinity where only the reference is."""
    return ratio(*distances(reference, candidate)[:2])


def routed(*asked: str) -> Synthetic:
    """A run of a model with experts, each token given to two of four in two layers, that recorded ``asked`` beside the usual."""
    shapes = SHAPES | {f"model.layers.{layer}.mlp.experts.0.up_proj.weight": (4, 4) for layer in (0, 1)}
    run = grown(shapes | {f"{router}.weight": (EXPERTS, 4) for router in ROUTERS})
    run.settings |= dict.fromkeys(asked, "all")
    for step in range(STEPS):
        random = np.random.default_rng(300 + step)
        chosen = {router: random.permuted(np.tile(np.arange(EXPERTS), (ROWS, SEQUENCE, 1)), axis=2)[:, :, :2] for router in ROUTERS}
        run.routing[step] = {router: np.sort(experts, axis=2).astype(np.int16) for router, experts in chosen.items()}
    return run


HONEST_SKETCHED = Synthetic(settings={"batches": "all", "local_norms": "all", "sketches": "all"})
"""The usual run, its tensors sketched."""


def changed(name: str, *changes: tuple[str, str], where: Path) -> str:
    """``launch/<name>`` with some of its text replaced, and more behind it where nothing is replaced."""
    text = (LAUNCH / name).read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new) if old else text + new
    (where / name).write_text(text)
    return str(where / name)
