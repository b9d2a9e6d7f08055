"""``align-hooks convert``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Annotated

from align_hooks.checkpoints.convert import KEEP, LAYERS, TO, ConversionOptions, convert_weights
from align_hooks.checkpoints.forms import is_weights
from align_hooks.cli.application import Option, Positional, app
from align_hooks.cli.files import destination_of, output, place_of
from align_hooks.configuration.values import FRAMEWORKS
from align_hooks.errors import AlignHooksError
from align_hooks.evidence.convert import convert as convert_log
from align_hooks.evidence.convert import convert_curves, is_curves
from align_hooks.evidence.dumps.npy_lists import convert_gradients, is_numbered
from align_hooks.evidence.dumps.record import convert_dump, is_dump
from align_hooks.evidence.monitor import convert_monitored, is_monitored
from align_hooks.evidence.recording import Scalars
from align_hooks.report.console import command, paragraph


@app.command
def convert(
    source: Annotated[
        Path,
        Positional(
            help="a log that Megatron-LM or MindFormers printed, TensorBoard's events, a table of W&B's, or a directory that msprobe or "
            "MindSpore dumped; with --to a checkpoint, or a record (RUN@N)"
        ),
    ],
    destination: Annotated[Path, Positional(help="the record to write; with --to the checkpoint")],
    names: Annotated[
        Path | None,
        Option(
            help="a record of the same model, for what has no names of ours: by MindFormers for the norms of a log, by Megatron-LM for "
            "grad_N.npy, by either for the norms of msprobe's monitor"
        ),
    ] = None,
    to: Annotated[str | None, Option(help=f"convert weights, into one of {', '.join(TO)}")] = None,
    config: Annotated[
        Path | None,
        Option(help="of weights or a dump: a Hugging Face config.json, or its directory, where they do not say which model they are of"),
    ] = None,
    dtype: Annotated[str, Option(help="of weights: keep, float32, bfloat16 or float16, rounded to nearest even")] = KEEP,
    layers: Annotated[str, Option(help="to megatron: as --transformer-impl builds them, transformer-engine or local")] = LAYERS[0],
    grouped_experts: Annotated[bool, Option("--grouped-experts", help="to megatron: experts as of --moe-grouped-gemm")] = False,
    qkv_concat: Annotated[bool, Option("--qkv-concat", help="to mindspore: parameters as of qkv_concat: True")] = False,
    vocabulary_rows: Annotated[int | None, Option(min=1, help="to megatron, mindspore: pad the vocabulary to so many rows")] = None,
    side: Annotated[str | None, Option(help="of curves, or of a list of .npy files: torch or ms, whose they are")] = None,
    loss_scale: Annotated[float | None, Option(help="of a dump: what the loss was multiplied by before the backward pass")] = None,
    first_step: Annotated[
        int | None, Option(min=0, help="of a dump: the step of its first one, where the tool counted from a resumed run's start")
    ] = None,
) -> None:
    """Make a record of a log or a dump, or convert weights.

    Weights are converted (--to) between records, Hugging Face, Megatron-LM and MindFormers, to the bit.
    Of a log: loss, gradient norm and learning rate of every step, each at its own step, and how fine they are. Of a dump: what the points
    of the model put out, and their gradients (docs/dumps.md). Of TensorBoard's events, of CSV and of JSON lines, as W&B exports them: the
    curves of loss, gradient norm and learning rate. Of msprobe's monitor: the norms of gradients. What compare, show and their pages say of
    a record they say of this one too, as far as it goes. Of weights: docs/convert.md.

    Exit codes: 0 written, 2 usage, 3 unreadable.

    Example: align-hooks convert megatron.log runs/megatron_log
    """
    source, destination = place_of(source), destination_of("DESTINATION", destination)
    names = place_of(names, "--names ") if names is not None else None
    config = place_of(config, "--config ") if config is not None else None
    options = ConversionOptions(dtype, layers, grouped_experts, qkv_concat, vocabulary_rows)
    of_weights = options != ConversionOptions()
    of_dump = {"--side": side, "--loss-scale": loss_scale, "--first-step": first_step}
    given = [option for option, value in {**of_dump, "--names": names, "--config": config}.items() if value is not None]

    def refuse_all_but(own: set[str], why: str) -> None:
        if of_weights or not own >= set(given):
            raise AlignHooksError(f"{source} {why}")

    if to is None and names is not None and is_numbered(source):
        why = "has gradients by number, of which --names and --first-step alone speak; leave out the rest"
        refuse_all_but({"--names", "--first-step"}, why)
        step = first_step or 0
        count = convert_gradients(source, destination, names, step)
        _print(f"{count} gradients of step {step} (iteration {step + 1})", (), destination)
    elif to is None and is_dump(source):
        why = f"is no log and no weights, of which an option speaks; leave out all but {', '.join(of_dump)}"
        refuse_all_but({*of_dump, "--config"}, why)
        scale = 1.0 if loss_scale is None else loss_scale
        dump = convert_dump(source, destination, config=config, side=side, loss_scale=scale, first=first_step)
        steps = f"step {dump.steps[0]} (iteration {dump.steps[0] + 1})" if len(dump.steps) == 1 else _steps(dump.steps)
        found = f"{dump.tool}, by the modules of {dump.framework}: {steps}; {dump.points} values, {dump.gradients} gradients"
        statistics = [f"{dump.statistics} of them are statistics alone: their norms are compared"] if dump.statistics else []
        _print(found, (*statistics, *dump.notes), destination)
    elif to is None and is_monitored(source):
        why = "has norms of msprobe's monitor, of which --names and --side alone speak; leave out the rest"
        refuse_all_but({"--names", "--side"}, why)
        _print_scalars(*convert_monitored(source, destination, names, side), destination)
    elif to is None and is_curves(source):
        refuse_all_but({"--side"}, "has curves, of which --side alone speaks; leave out the rest")
        _print_scalars(convert_curves(source, destination, side), (), destination)
    elif given and given[0] in of_dump:
        raise AlignHooksError(f"{given[0]} is of a dump, and {source} is none; leave it out")
    elif to is None:
        if config is not None or of_weights or is_weights(source):
            forms = ", ".join(TO)
            raise AlignHooksError(f"{source} is converted as a log unless --to says into what weights are; add --to with one of {forms}")
        _print_scalars(*convert_log(source, destination, names), destination)
    elif names is not None:
        raise AlignHooksError("--names is of a log, --to of weights; leave one of them out")
    else:
        converted = convert_weights(source, destination, to, options, config)
        _print(f"{converted.tensors} tensors of {converted.model}, from {converted.form} to {to}", converted.notes, destination)


def _print_scalars(converted: Scalars, normed: Collection[object], run: Path) -> None:
    """Print which steps were converted, and how many of them with local norms."""
    steps = [int(row["step"] or 0) for row in converted.rows]
    of_norms = [f"local norms of {len(normed)} of them"] if normed else []
    framework = FRAMEWORKS.get(converted.side or "", "an unknown framework")
    _print(f"{framework}: {_steps(steps)}", (*converted.notes, *of_norms), run)


def _steps(steps: Sequence[int]) -> str:
    first, last = steps[0], steps[-1]
    return f"{len(steps)} steps, {first} to {last} (iterations {first + 1} to {last + 1})"


def _print(found: str, notes: Iterable[str], written: Path) -> None:
    console = output()
    paragraph(console, found, 0)
    for note in notes:
        paragraph(console, note)
    command(console, f"written: {written}", 0)
