"""Recorded batches in place of the data set.

Patch point: ``build_train_valid_test_data_iterators``. Every ``forward_step`` draws from its result, whatever the script's ``get_batch``
does. The user's data stays unopened: the other cluster need not have it. The batches have the keys of Megatron's own data sets.
"""

from collections.abc import Iterator

import numpy as np
import torch
from megatron.core import utils
from megatron.core.rerun_state_machine import RerunDataIterator

from align_hooks.errors import RecordError, RefusedRun, shown
from align_hooks.hooking.hook import Args, Function, Instance, Kwargs, Result
from align_hooks.names.blocks import Array
from align_hooks.record.format.documents import ends_of
from align_hooks.replay.batches import DocumentForm, Replay
from align_hooks.settings import PREFIX
from align_hooks.torch_side.objects import Arguments
from align_hooks.torch_side.refusals import packs
from align_hooks.torch_side.run_arguments import OwnArguments, get_args
from align_hooks.torch_side.session import TorchSession

DTYPES = dict.fromkeys(("tokens", "labels", "position_ids"), torch.int64)
DTYPES |= {"loss_mask": torch.float32, "attention_mask": torch.bool}


class NotRecorded(RefusedRun, KeyError, AttributeError):
    """A ``forward_step`` reads what no recorded batch has; a KeyError and an AttributeError, since scripts may try several keys."""

    def __str__(self) -> str:
        return str(self.args[0])


class RecordedBatch(dict[str, torch.Tensor]):
    """A recorded micro-batch, host tensors by name. A mask that is not recorded is causal, and made when it is read."""

    def __missing__(self, key: object) -> torch.Tensor:
        if key == "attention_mask":
            self[key] = causal_mask(*self["tokens"].shape)
            return self[key]
        raise NotRecorded(
            f"ALIGN_HOOKS_REPLAY_BATCHES: forward_step reads {shown(repr(key))} of a batch, and recorded batches have {', '.join(self)}; "
            "have it read these where they are there, labels and loss_mask as they are"
        )

    def __getattr__(self, name: str) -> object:
        if name.startswith("_"):
            raise AttributeError(name)
        return self.__missing__(f".{name}")  # batches of some loops are objects

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self),)


def wrap(session: TorchSession, wrapped: Function, instance: Instance, args: Args, kwargs: Kwargs) -> Result:
    """Return an iterator over recorded micro-batches, and no validation or test data."""
    assert session.replay is not None
    options = get_args()
    options.do_train, options.do_valid, options.do_test = True, False, False
    return recorded(session, session.replay), None, None


def recorded(session: TorchSession, replay: Replay) -> RerunDataIterator:
    """Return an iterator over recorded micro-batches, in the form that the run's arguments ask for."""
    args = get_args()
    return RerunDataIterator(micro_batches(session, replay, args.micro_batch_size, form_of(args)))


def form_of(args: Arguments) -> DocumentForm:
    """Return how Megatron's scripts give a model its documents under these arguments."""
    if packs(lambda name: getattr(args, name, None)):
        return DocumentForm.PACKED
    masks = getattr(args, "create_attention_mask_in_dataloader", not isinstance(args, OwnArguments))
    return DocumentForm.MASK if masks else DocumentForm.NONE


def refuse_unread(form: DocumentForm) -> None:
    """Refuse packed samples for a Megatron whose scripts do not read them as :func:`ends` makes them."""
    # a commit of June 2026 brought it, and trees of before call themselves 0.19.0 too
    if form is DocumentForm.PACKED and not hasattr(utils, "flatten_batch_for_packed_sequences"):
        raise RefusedRun(f"{PREFIX}REPLAY_BATCHES: packed samples are replayed into Megatron 0.19 alone; use it, or train without packing")


def micro_batches(session: TorchSession, replay: Replay, rows: int, form: DocumentForm) -> Iterator[dict[str, torch.Tensor]]:
    """Yield micro-batches of ``rows`` as a Megatron data loader does: host tensors by name.

    In the form of masks a batch has an attention mask, bool, True where attention is forbidden; a causal mask unless recorded. In the
    packed form it has the ends of its documents."""
    for step, arrays in replay.micro_batches(rows, packed=form is DocumentForm.PACKED):
        if session.step is not None and session.step != step:
            raise RefusedRun(
                f"step {session.step} asked for a batch and {replay.source} is at step {step}: step N is only trained on step N"
            )
        documents = arrays.pop("documents", None)
        batch = RecordedBatch({name: torch.tensor(array, dtype=DTYPES[name]) for name, array in arrays.items()})
        if documents is not None:
            batch |= ends(documents)
        if form is DocumentForm.MASK:
            batch["attention_mask"]  # read, and so made
        yield batch
    raise RecordError(
        f"{replay.source} ends with step {replay.steps[-1]}: nothing is left to replay; train for {replay.steps[-1] + 1} iterations"
    )


def causal_mask(rows: int, length: int) -> torch.Tensor:
    """Return a causal mask, bool ``[rows, 1, length, length]``, True where attention is forbidden."""
    causal = torch.ones(length, length, dtype=torch.bool).triu(1)
    return causal.expand(rows, 1, length, length).contiguous()  # Megatron broadcasts it from its memory


def ends(documents: Array) -> dict[str, torch.Tensor]:
    """Return ``cu_seqlens``, filled up with the sequence length as in Megatron's data sets, and the length of the longest document."""
    of_rows = ends_of(documents)
    most = max(map(len, of_rows))
    filled_up = np.stack([np.pad(row, (0, most - len(row)), mode="edge") for row in of_rows])
    longest = [int(np.diff(row).max()) for row in of_rows]
    return {"cu_seqlens": torch.from_numpy(filled_up), "max_seqlen": torch.tensor(longest, dtype=torch.int32)}
