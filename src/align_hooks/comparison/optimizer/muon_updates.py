"""Find the terms of Muon that made recorded updates, from each matrix by itself.

What differs says which term it is: the momentum on record shows momentum and dampening, weights off by a factor of the step show the scale
or the rate, and an update with the singular vectors that it should have and other singular values shows the coefficients."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import median

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from align_hooks.comparison.finding import Term
from align_hooks.comparison.metrics.limits import weights_eps
from align_hooks.comparison.optimizer import muon
from align_hooks.comparison.optimizer.formula import FITS
from align_hooks.comparison.optimizer.recorded_updates import UpdateRow, gradients, rows_of_updates
from align_hooks.comparison.optimizer.updates import MOVED, FittedTerm, of_numbers
from align_hooks.messages import Message, message
from align_hooks.process.work import WorkPool
from align_hooks.quantities.optimizer_state import MOMENTUM
from align_hooks.record.format.schema import MuonMatrix, OptimizerFacts, ParameterGroup
from align_hooks.record.reader import Run

OPERATIONS = 1e12
"""Floating-point operations for which matrices are checked, one of each shape first: half a minute of a few cores."""
PROBED = 3
"""Shapes of matrices in which a term is looked for that could be another."""
EQUAL = 1e-3
"""Relative difference of factors that are one."""


class RecordedMatrix(Struct, frozen=True):
    """The updates of one matrix, which are read anew each time."""

    run: Run
    partner: Run
    group: ParameterGroup
    matrix: MuonMatrix
    shape: tuple[int, int]
    """Of a block."""
    rows: tuple[UpdateRow, ...]

    def updates(self) -> Iterator[muon.MatrixUpdate]:
        """Yield the updates in their order."""
        for row in self.rows:
            step, rate = row.step, row.rates[self.matrix.parameters[0]]
            before, after = (self._blocks(self.run.weights(number)) for number in (step, step + 1))
            gradient = self._blocks(gradients(self.run, self.partner, step))
            clipped = tuple(row.coefficient * block for block in gradient)
            momenta = self._momentum(step), self._momentum(step + 1)
            yield muon.MatrixUpdate(step, rate, before, after, clipped, *momenta, weights_eps(self.run))

    @property
    def name(self) -> str:
        """The name of its first tensor."""
        return self.matrix.parameters[0]

    @property
    def operations(self) -> float:
        """Floating-point operations of one check."""
        short, long = sorted(self.shape)
        steps = len(self.group.coefficients or ())
        return 2.0 * self.matrix.blocks * len(self.rows) * steps * (4 * short * short * long + 2 * short**3)

    def _blocks(self, tensors: Mapping[str, muon.Array]) -> muon.Blocks:
        return muon.parts_of(self.matrix, [np.asarray(tensors[name], np.float64) for name in self.matrix.parameters])

    def _momentum(self, updates: int) -> muon.Blocks | None:
        if updates not in self.run.optimizer_state_steps():
            return None
        return self._blocks(self.run.optimizer_state(updates).moments[MOMENTUM])


class MuonCheck(Struct, frozen=True):
    """The check of one run's updates by Muon."""

    updates: int
    checked: int
    """The number of matrices that were checked."""
    matrices: int
    misfit: float
    """The largest, in roundings, with the settings on record."""
    terms: tuple[FittedTerm, ...] = ()
    """Terms that were not used as recorded."""
    left: tuple[str, ...] = ()
    """The first tensors of matrices whose updates no term explains."""
    unseen: tuple[Term, ...] = ()
    """Terms that could be quite different and would not show."""

    @property
    def follows(self) -> bool:
        """Return whether the updates follow the settings on record."""
        return self.misfit <= FITS


def check_muon(run: Run, partner: Run, optimizer: OptimizerFacts, *, candidate: bool, work: WorkPool) -> MuonCheck | Message | None:
    """Check a run's updates of the matrices of its Muon groups; None without such groups, or why they cannot be checked."""
    groups = [group for group in optimizer.groups if group.momentum is not None]
    if not groups:
        return None
    rows = rows_of_updates(run, partner, optimizer, candidate=candidate)
    if isinstance(rows, Message):
        return rows
    if not all(map(_is_known, groups)):
        return message("formula.muon_not_on_record")
    known = run.weights(rows[0].step).keys() & gradients(run, partner, rows[0].step).keys()
    every = [(group, matrix) for group in groups for matrix in group.matrices or () if known >= set(matrix.parameters)]
    if not every:
        return message("formula.none_of_its_weights")
    recorded = [RecordedMatrix(run, partner, group, matrix, _shape(run, rows[0].step, matrix), tuple(rows)) for group, matrix in every]
    chosen = _affordable(recorded)
    found = []
    for index, each in enumerate(chosen):
        work.progress(message("after_update.matrix", name=each.name), index, len(chosen))
        found.append(muon.misfits(each.group, each.updates()))
    if not all(math.isfinite(number) for pair in found for number in pair):
        first = next(each.name for each, pair in zip(chosen, found, strict=True) if sum(pair) != sum(pair))
        return message("formula.not_finite_matrix", name=first)
    worst = max(max(pair) for pair in found)
    counts = (len(rows), len(chosen), len(every))
    if worst <= FITS:
        shapes = {each.shape: each for each in chosen}
        least = sorted(shapes.values(), key=lambda each: each.operations)[:PROBED]
        hidden = [{*_unseen(each)} for each in least]
        return MuonCheck(*counts, worst, unseen=tuple(term for term in Term if all(term in terms for terms in hidden)))
    terms, left = _explained(chosen, found)
    return MuonCheck(*counts, worst, tuple(terms), tuple(left))


def _is_known(group: ParameterGroup) -> bool:
    """Return whether a group's record has all that the formula takes, in words that it knows."""
    numbers = (group.momentum, group.dampening, group.weight_decay, group.extra_scale_factor)
    words = group.scale_mode in muon.SCALES, group.products in muon.MANTISSA, group.weight_decay_method in muon.DECAYS
    known = group.nesterov is not None and bool(group.coefficients)
    return known and all(words) and all(number is not None and math.isfinite(number) for number in numbers)


def _shape(run: Run, step: int, matrix: MuonMatrix) -> tuple[int, int]:
    """Return the shape of a block."""
    shapes = [run.weights(step).shape(name) for name in matrix.parameters]
    size = [sum(rows for rows, _ in shapes), shapes[0][1]]
    size[matrix.axis] //= matrix.blocks
    return size[0], size[1]


def _affordable(matrices: Sequence[RecordedMatrix]) -> list[RecordedMatrix]:
    """Return the matrices for which there are operations: one of each shape first, the smaller before the larger."""
    seen: dict[tuple[int, int], int] = {}
    order: list[tuple[int, float, int]] = []
    for each in matrices:
        seen[each.shape] = number = seen.get(each.shape, 0) + 1
        order.append((number, each.operations, len(order)))
    chosen: list[int] = []
    left = OPERATIONS
    for _, operations, index in sorted(order):
        left -= operations
        if chosen and left < 0:
            break
        chosen.append(index)
    return [matrices[index] for index in sorted(chosen)]


def _unseen(each: RecordedMatrix) -> Iterator[Term]:
    """Yield the terms that could be quite different and would not show in a matrix."""
    group = each.group
    assert group.momentum is not None and group.dampening is not None and group.extra_scale_factor is not None and group.coefficients
    less = max(0.0, 1 - 2 * (1 - group.momentum))
    others = {
        Term.MOMENTUM: replace(group, momentum=less, dampening=less if group.dampening == group.momentum else group.dampening),
        Term.NESTEROV: replace(group, nesterov=not group.nesterov),
        Term.COEFFICIENTS: replace(group, coefficients=group.coefficients[:-1] or ((1.0, 0.0, 0.0),)),
        Term.SCALE: replace(group, extra_scale_factor=1.1 * group.extra_scale_factor),
        Term.WEIGHT_DECAY: replace(group, weight_decay=0.5 * group.weight_decay if group.weight_decay else 0.1),
    }
    yield from (term for term, other in others.items() if max(muon.misfits(other, each.updates())) <= FITS)


def _explained(matrices: Sequence[RecordedMatrix], found: Sequence[tuple[float, float]]) -> tuple[list[FittedTerm], list[str]]:
    """Return the terms that explain the misfits of momentum and weights, and the names of what no term explains."""
    terms, left = [], []
    wrong = [each for each, (momentum, _) in zip(matrices, found, strict=True) if momentum > FITS]
    used = _momentum(wrong) if wrong else None
    if used is not None:
        terms.append(_momentum_term(wrong[0].group, *used, wrong, matrices))
        matrices = [_with(each, momentum=used[0], dampening=1 - used[1]) if each in wrong else each for each in matrices]
        found = [muon.misfits(each.group, each.updates()) for each in matrices]
    left += [each.name for each, (momentum, _) in zip(matrices, found, strict=True) if momentum > FITS]
    off = [each for each, (_, weights) in zip(matrices, found, strict=True) if weights > FITS]
    fitted = {each.name: fit for each in off if (fit := _fitted(each)) is not None}
    terms += _step_terms(matrices, {each.name: fitted.get(each.name, StepFit(each.group.weight_decay or 0.0)) for each in matrices})
    rest = [each for each in off if each.name not in fitted]
    for kind in (_coefficients_term, _nesterov_term, _unrecorded_momentum_term):
        term = kind(rest, matrices) if rest else None
        if term is not None:
            return [*terms, term], left
    return terms, [*dict.fromkeys((*left, *(each.name for each in rest)))]


def _with(each: RecordedMatrix, **changes: object) -> RecordedMatrix:
    group = replace(each.group, **changes)
    return RecordedMatrix(each.run, each.partner, group, each.matrix, each.shape, each.rows)


def _names(some: Sequence[RecordedMatrix], matrices: Sequence[RecordedMatrix]) -> tuple[str, ...]:
    """Return the tensors of some matrices; none where they are all."""
    return () if len(some) == len(matrices) else tuple(name for each in some for name in each.matrix.parameters)


def _momentum(matrices: Sequence[RecordedMatrix]) -> tuple[float, float] | None:
    """Return the factors of momentum and gradient with which the recorded momentum was made; None where no two factors do it."""
    normal, right = np.zeros((2, 2)), np.zeros(2)
    for block in (block for each in matrices for block in muon.predictions(each.group, each.updates())):
        if block.recorded is not None:
            columns = np.stack([block.old.ravel(), block.gradient.ravel()])
            normal += columns @ columns.T
            right += columns @ block.recorded.ravel()
    momentum, weight = np.linalg.lstsq(normal, right, rcond=None)[0].tolist()
    used = [_with(each, momentum=momentum, dampening=1 - weight) for each in matrices]
    return (momentum, weight) if all(muon.misfits(each.group, each.updates())[0] <= FITS for each in used) else None


def _momentum_term(
    group: ParameterGroup, momentum: float, weight: float, some: Sequence[RecordedMatrix], matrices: Sequence[RecordedMatrix]
) -> FittedTerm:
    assert group.dampening is not None
    recorded = message("after_update.momentum", momentum=group.momentum, weight=1 - group.dampening)
    used = message("after_update.fitted_momentum", momentum=momentum, weight=weight)
    return FittedTerm(Term.MOMENTUM, recorded, used, _names(some, matrices))


class StepFit(Struct, frozen=True):
    """How a matrix's updates were made of the recorded weights and the predicted direction; medians of its updates."""

    decay: float
    rate: float = 1.0
    """Factor of the learning rate, which decay may follow."""
    factor: float = 1.0
    """Factor of the step alone."""


def _fitted(each: RecordedMatrix) -> StepFit | None:
    """Return the decay, rate and factor that explain a matrix's updates; None where none do."""
    fits = []
    for block in muon.predictions(each.group, each.updates()):
        fit = _of_block(block, each.group)
        if fit is None:
            return None
        fits.append(fit)
    return StepFit(median(fit.decay for fit in fits), median(fit.rate for fit in fits), median(fit.factor for fit in fits))


def _of_block(block: muon.BlockUpdate, group: ParameterGroup) -> StepFit | None:
    """Return the change of fewest terms that explains an update."""
    decay = group.weight_decay or 0.0
    unit = muon.DECAYS[str(group.weight_decay_method)](block.rate, 1.0)
    taken = block.decayed * block.before
    if (rate := _solved(block, taken + block.step)) is not None:
        return StepFit(decay, rate=rate[0])
    if (factor := _solved(block, block.step, known=taken)) is not None:
        return StepFit(decay, factor=factor[0])
    if unit and (part := _solved(block, unit * block.before, known=block.step)) is not None:
        return StepFit(part[0])
    if unit and (both := _solved(block, unit * block.before, block.step)) is not None:
        return StepFit(both[0], factor=both[1])
    return None


def _solved(block: muon.BlockUpdate, *columns: muon.Array, known: muon.Array | float = 0.0) -> list[float] | None:
    """Return the factors of the columns whose sum, with what is known, is the change of the weights; None where there are none."""
    change = (block.before - block.after - known).ravel()
    matrix = np.stack([column.ravel() for column in columns], axis=1)
    solved = np.linalg.lstsq(matrix, change, rcond=None)[0]
    return solved.tolist() if muon.in_roundings(change - matrix @ solved, block.weights_rounding) <= FITS else None


def _step_terms(matrices: Sequence[RecordedMatrix], fits: Mapping[str, StepFit]) -> Iterator[FittedTerm]:
    """Yield decay, rate and scale where they are not as recorded."""
    decays = [each for each in matrices if abs(fits[each.name].decay - (each.group.weight_decay or 0.0)) > EQUAL * fits[each.name].decay]
    if decays:
        yield of_numbers(Term.WEIGHT_DECAY, decays[0].group.weight_decay or 0.0, fits[decays[0].name].decay, _names(decays, matrices))
    factors = {each.name: fits[each.name].rate * fits[each.name].factor for each in matrices}
    some = [each for each in matrices if abs(factors[each.name] - 1) > MOVED]
    if not some:
        return
    shared = _one([fits[each.name].rate for each in some])
    mode, extra = str(some[0].group.scale_mode), some[0].group.extra_scale_factor or 0.0
    found = _modes(matrices, factors)
    nearest = min(found, key=lambda other: (abs(found[other] - extra) > EQUAL * extra, other != mode), default=mode)
    explained = nearest != mode and abs(found[nearest] - extra) <= EQUAL * extra
    if shared is not None and shared != 1 and not explained:
        rate = max((row.rates[some[0].name] for row in some[0].rows), default=0.0)
        yield of_numbers(Term.LEARNING_RATE, rate, rate * shared, _names(some, matrices))
        return
    used = message("after_update.factors", least=min(factors.values()), largest=max(factors.values()))
    if found:
        used = message("after_update.fitted_scale", mode=nearest, factor=found[nearest])
    yield FittedTerm(Term.SCALE, message("after_update.scale", mode=mode, factor=extra), used, () if found else _names(some, matrices))


def _modes(matrices: Sequence[RecordedMatrix], factors: Mapping[str, float]) -> dict[str, float]:
    """Return the modes that explain the factors of all steps, each with its extra factor."""
    scales = {each.name: factors[each.name] * muon.scale_of(each.group, each.shape) for each in matrices}
    modes = {mode: _one([scales[each.name] / scale(*each.shape) for each in matrices]) for mode, scale in muon.SCALES.items()}
    return {mode: factor for mode, factor in modes.items() if factor is not None}


def _one(factors: Sequence[float]) -> float | None:
    """Return the factor that all are; None where they differ."""
    return median(factors) if max(factors) - min(factors) <= EQUAL * abs(median(factors)) else None


def _coefficients_term(some: Sequence[RecordedMatrix], matrices: Sequence[RecordedMatrix]) -> FittedTerm | None:
    """Return the term of the iteration where updates have the right singular vectors and other singular values."""
    values: list[muon.Array] = []
    for block in (block for each in some for block in muon.predictions(each.group, each.updates())):
        left, _, right = np.linalg.svd(block.orthogonalised, full_matrices=False)
        update = block.before * (1 - block.decayed) - block.after
        diagonal = np.einsum("ij,ij->j", left, update @ right.T)
        if muon.in_roundings(update - (left * diagonal) @ right, block.weights_rounding) > FITS:
            return None
        ours = np.einsum("ij,ij->j", left, block.direction @ right.T)
        values += [ours, diagonal / (block.rate * block.scale or 1.0)]
    recorded = some[0].group.coefficients or ()
    names = _names(some, matrices)
    for steps in range(1, 2 * len(recorded) + 1):
        if all(max(muon.misfits(_with(each, coefficients=(recorded * 2)[:steps]).group, each.updates())) <= FITS for each in some):
            made, used = (message("after_update.steps", count=count) for count in (len(recorded), steps))
            return FittedTerm(Term.COEFFICIENTS, made, used, names)
    both = [np.concatenate(values[at::2]) for at in (0, 1)]
    made, used = (message("after_update.singular_values", largest=float(each.max()), middle=float(np.median(each))) for each in both)
    return FittedTerm(Term.COEFFICIENTS, made, used, names)


def _nesterov_term(some: Sequence[RecordedMatrix], matrices: Sequence[RecordedMatrix]) -> FittedTerm | None:
    """Return the term where the other kind of momentum explains the updates."""
    others = [_with(each, nesterov=not each.group.nesterov) for each in some]
    if any(muon.misfits(each.group, each.updates())[1] > FITS for each in others):
        return None
    made, not_made = message("after_update.by_nesterov_of_muon"), message("after_update.not_nesterov_of_muon")
    return FittedTerm(Term.NESTEROV, *((made, not_made) if some[0].group.nesterov else (not_made, made)), _names(some, matrices))


def _unrecorded_momentum_term(some: Sequence[RecordedMatrix], matrices: Sequence[RecordedMatrix]) -> FittedTerm | None:
    """Return the term where another momentum, which is not on record itself, explains the weights."""
    group, least = some[0].group, min(some, key=lambda each: each.operations)
    assert group.momentum is not None and group.dampening is not None
    averages = group.dampening == group.momentum

    def of(each: RecordedMatrix, momentum: float) -> RecordedMatrix:
        return _with(each, momentum=momentum, dampening=momentum if averages else group.dampening)

    def misfit(momentum: float) -> float:
        return max(muon.misfits(of(least, momentum).group, least.updates()))

    low, high = 0.0, 1.0 - 1e-4
    grid = np.linspace(low, high, 33)
    best = int(np.argmin([misfit(float(each)) for each in grid]))
    low, high = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, 32)])
    golden = (math.sqrt(5) - 1) / 2
    while high - low > MOVED / 10:
        left, right = high - golden * (high - low), low + golden * (high - low)
        low, high = (low, right) if misfit(left) <= misfit(right) else (left, high)
    momentum = (low + high) / 2
    if any(max(muon.misfits(of(each, momentum).group, each.updates())) > FITS for each in some):
        return None
    return _momentum_term(group, momentum, 1 - momentum if averages else 1 - group.dampening, some, matrices)
