"""Train without a recorder and write what each step had: ``parts_of_ranks.py YAML FOLDER [KEY=VALUE ...]``.

In one process, or by msrun behind ``two_ranks.py``. Writes whole gradients and weights by name, the losses, and which part of each
parameter each rank holds. Every process trains on the same rows of a step.
"""

import json
import os
import sys
from pathlib import Path

import mindspore
import numpy as np
import yaml
from mindspore import Tensor

from align_hooks.ms_side.pynative.rehearsal import twins

path, folder, *changes = sys.argv[1:]
where = Path(folder)
where.mkdir(parents=True, exist_ok=True)
config = yaml.safe_load(Path(path).read_text())
for change in changes:
    key, _, value = change.partition("=")
    *sections, last = key.split(".")
    section = config
    for each in sections:
        section = section.setdefault(each, {})
    section[last] = yaml.safe_load(value)
config["model"]["use_flash_attention"] = False
rank, ranks = int(os.environ.get("RANK_ID", 0)), int(os.environ.get("RANK_SIZE", 1))
if ranks == 1:
    mindspore.set_device("CPU")
mindspore.set_context(mode=mindspore.PYNATIVE_MODE, pynative_synchronize=True)
if ranks == 1:
    from align_hooks.ms_side.pynative import hyper_parallel

    sys.meta_path.append(hyper_parallel.StandIn())
for owner, name, twin, _ in list(twins()):
    setattr(owner, name, twin)

from mindformers.pynative.callback import TrainerCallback  # noqa: E402
from mindformers.pynative.trainer import trainer as module  # noqa: E402
from mindformers.pynative.trainer.utils import get_grad  # noqa: E402
from mindformers.pynative.transformers.attention import Attention  # noqa: E402

Attention._repeat_kv = lambda self, x, repeats: x
sizes = config["training"]
parallel = config["parallelism"]
apart = ranks // (parallel.get("tensor_parallel", 1) * parallel.get("pipeline_parallel", 1) * parallel.get("context_parallel", 1))
length, vocabulary = config["model"]["seq_length"], config["model"]["vocab_size"]


class Rows:
    """Random rows, as many of each micro-batch as a rank reads."""

    def get_dataset_size(self):
        return sizes["steps"] * sizes["global_batch_size"] // (apart * sizes["local_batch_size"])

    def create_dict_iterator(self, **options):
        place = rank // (ranks // apart)
        for step in range(sizes["steps"]):
            drawn = np.random.default_rng(step).integers(0, vocabulary, (sizes["global_batch_size"], length + 1))
            for first in range(0, len(drawn), apart * sizes["local_batch_size"]):
                rows = drawn[first + place * sizes["local_batch_size"] :][: sizes["local_batch_size"]].astype(np.int32)
                yield {
                    "input_ids": Tensor(np.ascontiguousarray(rows[:, :-1])),
                    "labels": Tensor(np.ascontiguousarray(rows[:, 1:])),
                    "loss_mask": Tensor(np.ones((len(rows), length), np.float32)),
                    "position_ids": Tensor(np.ascontiguousarray(np.broadcast_to(np.arange(length, dtype=np.int32), (len(rows), length)))),
                }


def whole(value):
    """The whole of a tensor that may be cut."""
    return (value.full_tensor() if hasattr(value, "full_tensor") else value).asnumpy().copy()


update = module.Trainer._optimizer_update


def recorded(self):
    step, parts = self.state.global_step, {}
    gradients = {each.name: get_grad(each) for each in self.optimizer.parameters}
    for name, gradient in gradients.items():
        if hasattr(gradient, "layout"):
            box = [[side.start, side.stop] for side in gradient.layout.box(gradient.shape)]
            parts[name] = [gradient.device_mesh.mesh_dim_names, list(map(repr, gradient.placements)), box, list(gradient.shape)]
            assert np.array_equal(gradient.asnumpy(), whole(gradient)[gradient.layout.box(gradient.shape)])
    arrays = {name: whole(gradient) for name, gradient in gradients.items() if gradient is not None}
    norm = update(self)
    weights = {name: whole(each) for name, each in self.model[0].parameters_and_names()}
    if rank == 0:
        np.savez(where / f"gradients{step}.npz", **arrays)
        np.savez(where / f"weights{step + 1}.npz", **weights)
    (where / f"parts{rank}.json").write_text(json.dumps(parts, indent=1))
    return norm


class Losses(TrainerCallback):
    def on_step_end(self, args, state, **given):
        line = json.dumps({"step": state.global_step, "loss": float(given["loss"].asnumpy()), "norm": float(given["grad_norm"].asnumpy())})
        with (where / f"losses{rank}.jsonl").open("a") as file:
            file.write(line + "\n")


module.Trainer._optimizer_update = recorded
trainer = module.Trainer(config=config, train_dataset=Rows())
if ranks == 1:
    for each in trainer.model[0].trainable_params():
        each.register_hook(lambda gradient: gradient.contiguous())
if rank == 0:
    np.savez(where / "weights0.npz", **{name: whole(each) for name, each in trainer.model[0].parameters_and_names()} if ranks == 1 else {})
trainer.callback_handler.callbacks.append(Losses())
trainer.train()
print("STATE", [(each.name, type(each).__name__, tuple(each.shape), each.asnumpy().shape) for each in trainer.optimizer.exp_avg][:3])
