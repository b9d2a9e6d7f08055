"""Cells that a rehearsal puts in the place of a device's."""

from types import SimpleNamespace

import pytest

from align_hooks.ms_side.rehearsal import Attention


@pytest.mark.parametrize(("latent", "size"), [(True, 12), (False, 16)])
def test_scores_are_scaled_by_the_size_of_a_head_unless_the_model_says_otherwise(latent: bool, size: int) -> None:
    sizes = {"num_attention_heads": 4, "num_query_groups": 2, "qk_head_dim": 8, "qk_pos_emb_head_dim": 4, "kv_channels": 16}
    config = SimpleNamespace(multi_latent_attention=latent, **sizes)
    assert Attention(config, 1).scale == size**-0.5
    assert Attention(config, 1, softmax_scale=0.3).scale == 0.3
