"""The loss mask by the weight of each token: what may be believed, and what is never made up."""

from collections.abc import Callable

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from align_hooks.record.format.missing_batch import NOT_REPLAYED, MissingBatchReason  # noqa: E402
from align_hooks.torch_side.micro_batch import MicroBatch  # noqa: E402
from align_hooks.torch_side.micro_batch import loss_mask as judged  # noqa: E402

EPS = float(np.finfo(np.float32).eps)
MASK = np.array([[0, 1, 1, 0], [1, 1, 1, 0]], np.float32)
TAIL = np.array([[0, 1, 0.5, 0], [1, 1, 0.25, 0]], np.float32)
IDS = np.array([[3, 1, 4, 1], [5, 9, 2, 6]])
BY_ROW = MASK / MASK.sum(axis=1, keepdims=True)
FACTORS = (1.0, 1 / 135 / 2, 65536 / 3, -0.1)
"""A per-token loss, a mean over tokens and micro-batches, a loss scale, a loss that is maximised."""
LOSSES = IDS.astype(np.float32)


def loss_mask(weights: np.ndarray | None, handed: list[np.ndarray], loss: float = 0.0) -> np.ndarray | MissingBatchReason:
    return judged(weights, handed, EPS, LOSSES, loss)


def same(found: object, expected: np.ndarray) -> None:
    assert isinstance(found, np.ndarray) and found.dtype == np.float32
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("handed", [[], [MASK], [MASK.reshape(-1)], [1 - MASK], [IDS], [IDS, MASK], [np.ones((2, 4), np.float32)]])
def test_equal_weights_are_a_mask_of_0_and_1_whatever_was_handed_over(factor: float, handed: list[np.ndarray]) -> None:
    same(loss_mask(MASK * np.float32(factor), handed), MASK)


def test_rounding_is_no_difference() -> None:
    rounded = MASK * np.float32(1 / 7) * (1 + 2 * EPS * np.array([1, -1, 1, -1]))
    same(loss_mask(rounded, []), MASK)
    assert loss_mask(MASK * (1 + 40 * EPS * np.array([1, -1, 1, -1])), []) is MissingBatchReason.WEIGHTS


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("handed", [[TAIL], [IDS, TAIL], [MASK, TAIL.reshape(-1)], [TAIL.astype(np.float64)]])
def test_a_fractional_mask_is_believed_where_weights_are_proportional_to_it(factor: float, handed: list[np.ndarray]) -> None:
    same(loss_mask(TAIL * np.float32(factor), handed), TAIL)


NOT_HANDED = {"nothing": [], "ids": [IDS], "its square": [TAIL**2], "its opposite": [1 - TAIL], "one row of it": [TAIL[:1]]}
OTHER_ROW = np.array([[1], [-1]])
COUNTS, OVERFLOW = np.arange(1, 9, dtype=np.float32).reshape(2, 4), np.where(MASK > 0, np.inf, np.nan)
JUDGED: dict[str, tuple[np.ndarray | None, list[np.ndarray], np.ndarray | MissingBatchReason]] = {
    **{f"a fractional mask, handed over is {what}": (TAIL / 7, handed, MissingBatchReason.WEIGHTS) for what, handed in NOT_HANDED.items()},
    "a half for every token, handed over": (MASK / 7, [MASK / 2], MASK / 2),
    "rows that are reduced apart, their mask handed over": (BY_ROW, [MASK], MASK),
    "rows that are reduced apart, another mask handed over": (BY_ROW, [1 - MASK], MissingBatchReason.WEIGHTS),
    "rows that are reduced apart, nothing handed over": (BY_ROW, [], MissingBatchReason.WEIGHTS),
    "labels that the weights happen to be": (COUNTS, [COUNTS.astype(np.int64)], MissingBatchReason.WEIGHTS),
    "labels that are one number, where every token counts": (np.full((2, 4), 0.25, np.float32), [np.full((2, 4), 7)], MASK * 0 + 1),
    "a negative tensor": (-TAIL, [-TAIL], MissingBatchReason.WEIGHTS),
    "a tensor with a negative row": (TAIL * OTHER_ROW, [TAIL * OTHER_ROW], MissingBatchReason.WEIGHTS),
    "no token that counts": (MASK * 0, [], MASK * 0),
    "an overflow, which counts": (np.where(MASK > 0, np.inf, 0), [], MASK),
    "what is no number, which says nothing": (OVERFLOW, [MASK], MissingBatchReason.NOT_A_NUMBER),
    "no gradient": (None, [MASK], MissingBatchReason.NO_GRADIENT),
}


@pytest.mark.parametrize("case", JUDGED)
def test_a_mask_is_believed_or_the_reason_is_said_why_none_is(case: str) -> None:
    weights, handed, expected = JUDGED[case]
    if isinstance(expected, MissingBatchReason):
        assert loss_mask(weights, handed) is expected
    else:
        same(loss_mask(weights, handed), expected)


SUM = float((LOSSES * MASK).sum())
SILENT = {"none": None, "NaN": np.full((2, 4), np.nan, np.float32), "all 0": np.zeros((2, 4), np.float32)}


@pytest.mark.parametrize("silent", SILENT)
@pytest.mark.parametrize("loss", [SUM, SUM / MASK.sum(), SUM * (1 + 1e-6)])
def test_where_gradients_say_nothing_a_mask_is_believed_that_makes_the_loss(silent: str, loss: float) -> None:
    same(loss_mask(SILENT[silent], [IDS, 1 - MASK, MASK.reshape(-1)], loss), MASK)


@pytest.mark.parametrize(("silent", "reason"), [("none", "NO_GRADIENT"), ("NaN", "NOT_A_NUMBER"), ("all 0", "NO_GRADIENT")])
@pytest.mark.parametrize("handed", [[], [IDS], [1 - MASK], [LOSSES]])
def test_and_no_other(silent: str, reason: str, handed: list[np.ndarray]) -> None:
    assert loss_mask(SILENT[silent], handed, SUM) is MissingBatchReason[reason]
    assert loss_mask(SILENT[silent], handed, float("nan")) is MissingBatchReason[reason]


def test_the_reasons_say_whether_there_is_a_mask() -> None:
    assert set(MissingBatchReason) - NOT_REPLAYED == {MissingBatchReason.PASSES}


REDUCED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a mean": lambda losses, mask: (losses * mask).sum() / mask.sum(),
    "a sum, halved": lambda losses, mask: (losses.view(-1) * mask.view(-1)).sum() / 2,
    "chosen by index": lambda losses, mask: losses[mask > 0].mean(),
    "two uses": lambda losses, mask: (losses * mask).sum() - 0.5 * (losses * mask).sum(),
    "a loss that is NaN": lambda losses, mask: ((losses + torch.nan) * mask).sum(),
}


@pytest.mark.parametrize("name", REDUCED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_listener_reads_the_gradient_and_changes_none(name: str, dtype: torch.dtype) -> None:
    start = torch.rand(2, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float32).to(dtype)
    gradients = []
    for listens in (False, True):
        leaf = start.clone().requires_grad_()
        output = leaf * 3 + 1
        batch = MicroBatch({"labels": IDS})
        if listens:
            assert batch.keep_losses(output)
            output.register_hook(batch.weigh)
        REDUCED[name](output, torch.from_numpy(MASK)).backward()
        assert leaf.grad is not None
        gradients.append(leaf.grad.view(torch.int16 if dtype == torch.bfloat16 else torch.int32).numpy().tobytes())
    assert gradients[0] == gradients[1]
    assert batch.weights is not None
    arrays, unseen = batch.arrays(batch.weights.double().reshape(-1).numpy(), 1.0)
    same(arrays["loss_mask"], MASK)
    assert unseen == set()


def test_two_backward_passes_of_one_output_add_up() -> None:
    output = torch.ones(2, 4, requires_grad=True) * 2
    batch = MicroBatch({"labels": IDS})
    assert batch.keep_losses(output)
    output.register_hook(batch.weigh)
    first, second = torch.from_numpy(MASK), torch.from_numpy(1 - MASK)
    (output * first).sum().backward(retain_graph=True)
    (output * second).sum().backward()
    assert batch.weights is not None and bool((batch.weights == 1).all())


@pytest.mark.parametrize("output", [torch.ones(2, 4, 16, requires_grad=True), torch.ones(2, 3, requires_grad=True), "hidden states"])
def test_what_is_no_loss_a_label_is_left_alone(output: object) -> None:
    batch = MicroBatch({"labels": IDS})
    assert not batch.keep_losses(output)
    assert batch.arrays(None, 1.0) == ({"labels": IDS}, {MissingBatchReason.NO_GRADIENT})


def test_an_earlier_stage_says_nothing_of_the_mask() -> None:
    assert MicroBatch({"labels": IDS}, candidates=[MASK]).arrays(None, None) == ({"labels": IDS}, set())


def test_a_last_stage_without_labels_says_so() -> None:
    arrays, unseen = MicroBatch({"tokens": IDS}, candidates=[MASK]).arrays(None, 1.0)
    assert (sorted(arrays), unseen) == (["tokens"], {MissingBatchReason.LABELS})
