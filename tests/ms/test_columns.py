"""What MindFormers is fed, held against the rule by which its LlamaForCausalLM weighs tokens where it takes no mask (1.3)."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.columns import CUT, IGNORED, UNCUT, columns, takes_cut

NEVER = -1
VOCABULARY = 5
SHAPE = (2, 4)

ids = arrays(np.int64, SHAPE, elements=st.integers(0, VOCABULARY - 1))
masks = arrays(np.float64, SHAPE, elements=st.sampled_from([0.0, 1.0]))


class Cuts:
    def construct(self, input_ids: Any, labels: Any = None, input_position: Any = None) -> tuple[NDArray[Any], ...]:
        """Tokens, labels and mask as MindFormers 1.3 makes them of its columns."""
        tokens, targets = input_ids[:, :-1], labels[:, 1:]
        return tokens, targets, (tokens != NEVER) * (targets != IGNORED)


class Takes:
    def construct(self, input_ids: Any, labels: Any = None, input_position: Any = None, loss_mask: Any = None) -> tuple[NDArray[Any], ...]:
        """As they are."""
        return input_ids, labels, loss_mask


def test_a_model_is_known_by_whether_it_takes_a_mask() -> None:
    assert (takes_cut(Cuts), takes_cut(Takes)) == (False, True)


@given(tokens=ids, labels=ids, mask=masks, recorded=st.sampled_from([0, IGNORED]))
def test_a_model_that_cuts_sees_the_tokens_the_mask_and_the_labels_that_count(
    tokens: NDArray[Any], labels: NDArray[Any], mask: NDArray[Any], recorded: int
) -> None:
    """Labels need not be the next token, and what does not count may have been recorded as anything."""
    labels = np.where(mask > 0, labels, recorded)
    fed = columns(tokens, labels, mask, IGNORED)
    assert tuple(fed) == UNCUT
    seen = Cuts().construct(*fed.values())
    assert [one.shape for one in seen] == [SHAPE] * 3
    assert (seen[0] == tokens).all() and (seen[2] == mask).all() and (seen[1] == labels)[mask > 0].all()
    assert not np.isin(seen[1][mask == 0], range(VOCABULARY)).any()


@given(tokens=ids, labels=ids, mask=masks)
def test_a_model_that_takes_all_three_sees_them_as_they_are(tokens: NDArray[Any], labels: NDArray[Any], mask: NDArray[Any]) -> None:
    fed = columns(tokens, labels, mask, None)
    assert tuple(fed) == CUT
    assert all(one is other for one, other in zip(fed.values(), (tokens, labels, mask), strict=True))


def test_of_a_text_without_mask_both_columns_are_the_text() -> None:
    """As the data sets of 1.3 have it."""
    text = np.arange(2 * 5).reshape(2, 5)
    fed = columns(text[:, :-1], text[:, 1:], np.ones((2, 4)), IGNORED)
    assert all((one == text).all() for one in fed.values())


def test_a_weight_that_no_label_can_say_is_refused() -> None:
    with pytest.raises(RefusedRun, match="other weights than 0 and 1"):
        columns(np.zeros(SHAPE), np.zeros(SHAPE), np.full(SHAPE, 0.5), IGNORED)
