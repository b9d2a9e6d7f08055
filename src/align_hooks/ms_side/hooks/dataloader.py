"""``NumpyDataloader``: recorded batches as a MindFormers data set.

The guide's appendix adds a class of this name to ``mindformers/dataset``. Here a class is registered from outside, and
``ALIGN_HOOKS_REPLAY_BATCHES`` uses it without any YAML. A YAML may also name the class with no variable set, with the settings of
:func:`align_hooks.ms_side.hooks.config.as_recorded`. A user's own class of this name stays, except in a replay. In contrast to the guide's
class this one keeps every row of a step, yields the loss mask, and follows the recorded steps instead of the directory's entries.
:mod:`align_hooks.ms_side.columns` says what the LlamaForCausalLM of MindFormers 1.3 cuts.

Patch point: the end of ``import mindformers.dataset.base_dataset``, where the base class and the register exist.
"""

import sys
from pathlib import Path
from types import ModuleType

import numpy as np
from mindformers.tools.register import MindFormerModuleType, MindFormerRegister
from mindspore.dataset import GeneratorDataset

from align_hooks.errors import RefusedRun
from align_hooks.ms_side.columns import as_taken, columns, positions
from align_hooks.ms_side.hooks.config import BY_NAME, COLUMNS, as_recorded, get, ignored_label, register, resets, share
from align_hooks.ms_side.objects import Config
from align_hooks.ms_side.session import MsSession
from align_hooks.names.blocks import Array
from align_hooks.replay.batches import Replay, filled
from align_hooks.settings import Source, Steps

DIRECTORY = "train_dataset.data_loader.dataset_dir"
LEFT_OUT = {"seed": 0, "prefetch_size": 1, "numa_enable": False}
"""MindFormers' defaults from 1.7 on; 1.3 to 1.6 fail where a YAML leaves these out."""


class RecordedSteps:
    """Random access to a rank's part of each replayed step, in MindFormers' types; RefusedRun where the first batch does not fit."""

    def __init__(self, replay: Replay, names: list[str] | None, ignored: int | None, *, resets: bool = False) -> None:
        self.replay, self.ignored, self.resets = replay, ignored, resets
        first = self.of(replay.steps[0])
        self.names = names or list(first)
        if unknown := [name for name in self.names if name not in first]:
            raise RefusedRun(f"train_dataset.input_columns names {unknown[0]!r}; recorded batches have {', '.join(first)} here")

    def __len__(self) -> int:
        return len(self.replay.steps)

    def __getitem__(self, index: int) -> tuple[Array, ...]:
        arrays = self.of(self.replay.steps[int(index)])
        rank, ranks = self.replay.ranks
        rows = len(arrays["input_ids"]) // ranks  # consecutive rows: each rank has a micro-batch, or the graph joins them again
        mine = {name: arrays[name][rank * rows : (rank + 1) * rows] for name in self.names}
        return tuple(as_taken(name, array) for name, array in mine.items())

    def of(self, step: int) -> dict[str, Array]:
        """Map columns to arrays of a step, all ranks; raise RefusedRun for a batch that the model cannot read."""
        arrays = filled(self.replay.batch(step))
        if not self.resets:
            refuse_resets(arrays, step)
        present = columns(arrays["tokens"], arrays["labels"], arrays["loss_mask"], self.ignored)
        return present | (positions(arrays["position_ids"], arrays.get("attention_mask")) if self.resets else {})


def refuse_resets(arrays: dict[str, Array], step: int) -> None:
    """Refuse a batch that resets positions or attention mask for a model that makes both: older, or without ``use_eod_reset``."""
    if "attention_mask" in arrays:
        raise RefusedRun(
            f"step {step} was recorded with packed samples or an attention mask that is not causal, and the model makes a causal one; "
            f"record without --reset-attention-mask or packing, or set use_eod_reset: True for a newer model"
        )
    if (arrays["position_ids"] != np.arange(arrays["position_ids"].shape[1])).any():
        raise RefusedRun(
            f"step {step} was recorded with position ids that start anew, which the model makes itself; "
            f"record without --reset-position-ids, or set use_eod_reset: True for a newer model"
        )


def install(session: MsSession, module: ModuleType) -> None:
    """Register the class under the guide's name, unless the user's own has it."""

    class NumpyDataloader(module.BaseDataset):  # type: ignore[misc,name-defined]
        """Recorded batches, from ``data_loader.dataset_dir``."""

        def __new__(cls, dataset_config: Config = None, **options: object) -> GeneratorDataset:
            config = cls.check_dataset_config(dataset_config, {"dataset_config": dataset_config, "kwargs": options})
            session.config = session.config or kept()
            config.update({name: value for name, value in LEFT_OUT.items() if config.get(name) is None})
            cls.init_dataset_config(config)
            feed = session.replay or by_hand(session, config)
            steps = RecordedSteps(feed, config.get("input_columns"), ignored_label(session.config), resets=resets(session.config))
            return GeneratorDataset(steps, column_names=steps.names, shuffle=False, num_parallel_workers=1, python_multiprocessing=False)

    session.data_loader = NumpyDataloader
    if not MindFormerRegister.is_exist(MindFormerModuleType.DATASET, NumpyDataloader.__name__):
        register(session)


def kept() -> Config:
    """Return the configuration that ``build_context`` keeps, for a script without hooks; None where there is none."""
    module = sys.modules.get("mindformers.core.context.build_context")
    keeper = getattr(module, "Context", None) or getattr(module, "_Context", None)  # the second before 1.4
    return getattr(getattr(keeper, "_instance", None), "config", None)


def by_hand(session: MsSession, dataset: Config) -> Replay:
    """Return the replay of a YAML that names the data loader; raise RefusedRun where other settings do not fit the record."""
    directory = (dataset.get("data_loader") or {}).get("dataset_dir")
    wanted = as_recorded(session.config)
    # the Trainer has removed construct_args_key from the configuration, so its value is unknown
    seen = {COLUMNS: list(dataset.get("input_columns") or []), BY_NAME: wanted.get(BY_NAME)}
    seen |= {key: get(session.config, key) for key in wanted if key not in seen}
    different = [key for key, value in wanted.items() if seen[key] != value]
    if not directory or different:
        needs = {DIRECTORY: str(directory or "DIRECTORY_OF_THE_RECORD")} | wanted
        raise RefusedRun(
            f"a YAML that names NumpyDataloader itself needs {'; '.join(f'{key}: {value}' for key, value in needs.items())} "
            f"(not so: {', '.join([DIRECTORY] * (not directory) + different)}); "
            f"set them, or leave the YAML as it was and set ALIGN_HOOKS_REPLAY_BATCHES"
        )
    return Replay(Source(Path(directory).expanduser().resolve(), Steps.parse("all")), ranks=share(session))
