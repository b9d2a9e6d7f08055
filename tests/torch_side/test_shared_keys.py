"""Groups of keys that tensor-parallel ranks share: each computes with all of one, so no rank has a part of these points."""

from types import SimpleNamespace

import pytest
from torch.nn import Identity

from align_hooks.torch_side.probes import of_core


@pytest.mark.parametrize(
    ("groups", "ranks", "seen"), [(1, 2, ["query", "core"]), (2, 2, ["query", "key", "value", "core"]), (2, 4, ["query", "core"])]
)
def test_a_point_is_there_where_ranks_divide_its_heads(groups: int, ranks: int, seen: list[str]) -> None:
    config = SimpleNamespace(multi_latent_attention=False, kv_channels=16, num_attention_heads=4, num_query_groups=groups)
    points = list(of_core(Identity(), "model.layers.0.self_attn", config, {"tp": 1, "tp_size": ranks}))
    assert [value.name.rpartition(".")[2] for point in points for value in point.values] == seen
    for point in points:
        (value,) = point.values
        width = 16 * (groups if value.name.endswith(("key", "value")) else 4)
        assert (value.width, value.columns) == (width, (width // ranks, 2 * width // ranks))
