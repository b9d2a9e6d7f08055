"""A recorded micro-batch is the dict that a data set of Megatron's gives, and says what it has."""

import pickle
from copy import deepcopy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.training")

from align_hooks.errors import RefusedRun  # noqa: E402
from align_hooks.torch_side.hooks.data import RecordedBatch  # noqa: E402

FED = RecordedBatch({"tokens": torch.ones(2, 3), "labels": torch.ones(2, 3)})


@pytest.mark.parametrize("kind", [KeyError, RefusedRun])
def test_a_key_of_the_scripts_own_is_told_which_keys_there_are(kind: type[Exception]) -> None:
    with pytest.raises(kind) as caught:
        FED["text"]
    told = str(caught.value)
    assert "\n" not in told and all(repr("text") in told and name in told for name in FED)


def test_otherwise_it_is_a_dict() -> None:
    assert "text" not in FED and FED.get("text") is None and isinstance(FED, dict)
    assert [*FED] == ["tokens", "labels"]
    for copied in (pickle.loads(pickle.dumps(FED)), deepcopy(FED), dict(FED)):
        assert type(copied) is dict and all(bool((copied[name] == FED[name]).all()) for name in FED)
