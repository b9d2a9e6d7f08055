"""The digest of a step's tokens on the device is that of :mod:`align_hooks.record.format.token_digest`, however they are cut."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from align_hooks.record.format.token_digest import digest, text  # noqa: E402
from align_hooks.torch_side.token_digest import OF_KNOWN, TokenDigest, sums_of_rows  # noqa: E402


@pytest.mark.parametrize("rows", [1, 2, 4, 50, 200])
@pytest.mark.parametrize("kind", [torch.int64, torch.int32])
def test_micro_batches_add_up_to_the_step(rows: int, kind: torch.dtype) -> None:
    batch = np.random.default_rng(rows).integers(0, 150_000, (200, 33))
    parts = [torch.tensor(part, dtype=kind) for part in np.split(batch, 200 // rows)]
    upper = TokenDigest([sums_of_rows(part) for part in parts]).upper()
    assert upper is not None
    assert text(int(float(upper))) == digest(batch) == digest(*(part.numpy() for part in parts))


def test_tokens_on_the_host_are_kept_as_they_were() -> None:
    made, loaded = TokenDigest(), torch.ones(2, 3, dtype=torch.int64)
    made.add(loaded)
    loaded.zero_()
    assert made.upper() is None and digest(*(part.numpy() for part in made.on_host)) == digest(np.ones((2, 3), np.int64))


@pytest.mark.parametrize("tokens", [None, torch.zeros(2, 3), torch.zeros(3, dtype=torch.int64), "no tensor"])
def test_of_what_holds_no_tokens_nothing_is_known(tokens: object) -> None:
    made = TokenDigest()
    made.add(tokens)
    assert made.upper() is None


def test_a_device_that_adds_up_integers_gives_the_digest_of_known_tokens() -> None:
    made = TokenDigest()
    assert made.of_known() is None
    made.of_rows.append(sums_of_rows(torch.ones(1, 2, dtype=torch.int64)))
    known = made.of_known()
    assert known is not None and text(int(known)) == OF_KNOWN
