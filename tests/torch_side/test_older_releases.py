"""What a rehearsal and a record need of releases of Megatron-LM before 0.17, on the installed one with what these lack taken from it."""

import ast
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("megatron.core")

from megatron.core import parallel_state, utils  # noqa: E402
from megatron.core.extensions import transformer_engine  # noqa: E402
from megatron.core.tensor_parallel.layers import ColumnParallelLinear  # noqa: E402
from megatron.core.transformer import multi_latent_attention  # noqa: E402
from megatron.core.transformer.moe import moe_utils  # noqa: E402

from align_hooks.errors import RefusedRun  # noqa: E402
from align_hooks.process.ranks import Launch  # noqa: E402
from align_hooks.replay.batches import DocumentForm  # noqa: E402
from align_hooks.settings import Settings  # noqa: E402
from align_hooks.torch_side import rehearsal, sequence_sums  # noqa: E402
from align_hooks.torch_side.hooks import data  # noqa: E402
from align_hooks.torch_side.place import SINGLE_RANK, place  # noqa: E402
from align_hooks.torch_side.session import TorchSession  # noqa: E402


@pytest.fixture
def session(monkeypatch: pytest.MonkeyPatch) -> Iterator[TorchSession]:  # undone before what a test takes away comes back
    session = TorchSession("torch", Settings(device="cpu"), Launch())
    yield session
    session.patch_log.undo()


def test_a_router_chooses_without_transformer_engine(session: TorchSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(moe_utils, "te_general_gemm")
    inputs, weight = torch.randn(3, 4, requires_grad=True), torch.randn(2, 4, requires_grad=True)
    given = inputs, weight, None, torch.float32
    with pytest.raises(NameError, match="te_general_gemm"):
        moe_utils.router_gating_linear(*given)
    rehearsal.install_router(session, moe_utils)
    assert session.overrides == []
    made = moe_utils.router_gating_linear(*given)
    assert torch.equal(made, inputs @ weight.T)
    made.sum().backward()
    assert torch.equal(weight.grad, inputs.sum(0).detach().expand(2, 4))
    assert [change["what"] for change in session.overrides] == ["router"]


def test_a_router_that_has_its_product_is_left_alone(session: TorchSession) -> None:
    rehearsal.install_router(session, moe_utils)
    rehearsal.install_router(session, SimpleNamespace())  # 0.12
    assert not session.patch_log.journal


def test_megatrons_own_projection_is_not_taken_for_transformer_engines(session: TorchSession) -> None:
    """Latent attention of 0.14 to 0.16 imports the class and gives a projection of it arguments that no other has."""
    rehearsal.install_engine(session, transformer_engine)
    assert ColumnParallelLinear not in [transformer_engine.TELinear]
    older = SimpleNamespace(TELinear=transformer_engine.TELinear, Linear=None)
    for attention in (older, SimpleNamespace(), multi_latent_attention):  # in 0.12 it has neither name
        rehearsal.install_latent(session, attention)
    assert (older.Linear, multi_latent_attention.Linear) == (None, transformer_engine.TELinear)


@pytest.fixture
def one_rank() -> Iterator[None]:
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(create_gloo_process_groups=False)
    yield
    parallel_state.destroy_model_parallel()
    torch.distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
def test_a_place_needs_no_function_that_training_does_not_call(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> int:
        return False.size()  # type: ignore[attr-defined, no-any-return]

    monkeypatch.setattr(parallel_state, "get_expert_data_parallel_world_size", broken)
    assert place() == SINGLE_RANK


def test_packed_samples_are_refused_where_scripts_do_not_read_their_form(monkeypatch: pytest.MonkeyPatch) -> None:
    for form in DocumentForm:
        data.refuse_unread(form)
    monkeypatch.delattr(utils, "flatten_batch_for_packed_sequences")
    data.refuse_unread(DocumentForm.MASK)
    with pytest.raises(RefusedRun, match="packed samples are replayed into"):
        data.refuse_unread(DocumentForm.PACKED)


SCHEDULES = {
    "0.12": ("output_tensor *= parallel_state.get_context_parallel_world_size()", "loss_scale / num_microbatches", (True, False)),
    "0.13": ("output_tensor /= num_microbatches", "loss_scale / num_microbatches", (False, False)),
    "0.16": ("output_tensor /= num_microbatches", "loss_scale * cp_group_size / num_microbatches", (False, True)),
}
"""Release to two lines of its schedule, and whether it expects a sum over the ranks of a sequence and scales the balancing term."""


@pytest.mark.parametrize("release", SCHEDULES)
def test_what_a_schedule_scales_is_read_from_its_code(release: str) -> None:
    of_tokens, scale, expected = SCHEDULES[release]
    code = ast.parse(
        "if len(outputs) == 3:\n"
        f"    if not config.calculate_per_token_loss:\n        {of_tokens}\n"
        "else:\n    output_tensor *= cp_group_size\n"
        f"MoEAuxLossAutoScaler.set_loss_scale({scale})\n"
        "MTPLossAutoScaler.set_loss_scale(loss_scale * cp_group_size)"
    )
    assert (sequence_sums.is_summed(code), sequence_sums.is_scaled(code)) == expected


def test_the_installed_schedule_is_read() -> None:
    assert (sequence_sums.IS_SUMMED, sequence_sums.IS_SCALED) == (False, True)
