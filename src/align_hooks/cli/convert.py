"""``align-hooks convert``: a log into a record, or weights from one form into another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from align_hooks.checkpoints.convert import KEEP, LAYERS, TO, Choices, convert_weights
from align_hooks.checkpoints.forms import is_weights
from align_hooks.cli.application import app
from align_hooks.cli.files import place_of
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import AlignHooksError
from align_hooks.evidence.convert import convert as convert_log
from align_hooks.report.text import plain


@app.command()
def convert(
    source: Annotated[
        Path, typer.Argument(help="a log that Megatron-LM or MindFormers printed; with --to a checkpoint, or a record (RUN@N)")
    ],
    destination: Annotated[Path, typer.Argument(help="the record to write; with --to the checkpoint")],
    names: Annotated[
        Path | None, typer.Option(help="of a log: a record of the same model by MindFormers, for the norms that its local_norm: True logs")
    ] = None,
    to: Annotated[str | None, typer.Option(help=f"convert weights, into one of {', '.join(TO)}")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="of weights: a Hugging Face config.json, or its directory, where they do not say which model they are of"),
    ] = None,
    dtype: Annotated[str, typer.Option(help="of weights: keep, float32, bfloat16 or float16, rounded to nearest even")] = KEEP,
    layers: Annotated[str, typer.Option(help="to megatron: as --transformer-impl builds them, transformer-engine or local")] = LAYERS[0],
    grouped_experts: Annotated[bool, typer.Option("--grouped-experts", help="to megatron: experts as of --moe-grouped-gemm")] = False,
    qkv_concat: Annotated[bool, typer.Option("--qkv-concat", help="to mindspore: parameters as of qkv_concat: True")] = False,
    vocabulary_rows: Annotated[int | None, typer.Option(min=1, help="to megatron, mindspore: pad the vocabulary to so many rows")] = None,
) -> None:
    """Make a record of a log, or convert weights (--to) between records, Hugging Face, Megatron-LM and MindFormers, to the bit.

    Of a log: loss, gradient norm and learning rate of every step, each at its own step, and how fine they are. What compare, show and
    their pages say of a record they say of this one too, as far as a log goes. Of weights: docs/convert.md.

    Exit codes: 0 written, 2 usage, 3 unreadable.

    Example: align-hooks convert megatron.log runs/megatron_log
    """
    source, destination = place_of(source), place_of(destination)
    choices = Choices(dtype, layers, grouped_experts, qkv_concat, vocabulary_rows)
    if to is None:
        _refuse_weights(source, chosen=config is not None or choices != Choices())
        _convert_log(source, destination, names)
        return
    if names is not None:
        raise AlignHooksError("--names is of a log, --to of weights; leave one of them out")
    config = place_of(config, "--config ") if config is not None else None
    converted = convert_weights(source, destination, to, choices, config)
    print(f"{converted.tensors} tensors of {plain(converted.model)}, from {plain(converted.form)} to {to}")
    for note in converted.notes:
        print(f"  {plain(note)}")
    print(f"written: {plain(str(destination))}")


def _refuse_weights(source: Path, *, chosen: bool) -> None:
    if chosen or is_weights(source):
        raise AlignHooksError(
            f"{source} is converted as a log unless --to says into what weights are; add --to with one of {', '.join(TO)}"
        )


def _convert_log(log: Path, run: Path, names: Path | None) -> None:
    names = place_of(names, "--names ") if names is not None else None
    converted, normed = convert_log(log, run, names)
    print(f"{len(converted.rows)} steps of {FRAMEWORKS[converted.side]}, {converted.rows[0]['step']} to {converted.rows[-1]['step']}")
    for note in (*converted.notes, *([f"local norms of {len(normed)} of them"] if normed else [])):
        print(f"  {note}")
    print(f"written: {plain(str(run))}")
