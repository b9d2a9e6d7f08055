"""A checkout's own ``pretrain_gpt.py``, run as it is, and a witness: every raw loss and the final parameters, to the bit.

``python witness_checkout.py CHECKOUT/pretrain_gpt.py …`` writes them into WITNESS, and ``elsewhere``, the Megatron modules
that did not come from the checkout. The script takes ``pretrain`` from ``megatron.training``; there it finds one that
listens to the ``forward_step`` which the script hands over.
"""

import importlib
import inspect
import os
import runpy
import sys
from pathlib import Path

import numpy as np

script = Path(sys.argv[1]).resolve()
sys.argv = sys.argv[1:]
sys.path[0] = str(script.parent)

for name in os.environ.get("WITNESS_IMPORTS", "megatron.training").split(","):
    holder = importlib.import_module(name)  # the last holds the function that the script takes

seen: dict = {"losses": []}
pretrain = holder.pretrain


def listening(forward_step):
    def around(data_iterator, model, *args, **kwargs):
        seen["model"] = model
        output, loss = forward_step(data_iterator, model, *args, **kwargs)

        def loss_function(*loss_args, **loss_kwargs):
            result = loss(*loss_args, **loss_kwargs)
            seen["losses"].append(float(result[0].detach()))
            return result

        loss_function.args = getattr(loss, "args", ())  # where the loss mask is
        return output, loss_function

    return around


def witnessed(*args, **kwargs):
    call = inspect.signature(pretrain).bind(*args, **kwargs)
    call.arguments["forward_step_func"] = listening(call.arguments["forward_step_func"])
    return pretrain(*call.args, **call.kwargs)


def elsewhere() -> list[str]:
    files = {name: getattr(module, "__file__", None) for name, module in list(sys.modules.items()) if name.startswith("megatron.")}
    return sorted(name for name, file in files.items() if file is not None and script.parent not in Path(file).resolve().parents)


holder.pretrain = witnessed
runpy.run_path(str(script), run_name="__main__")
model = seen["model"]
while hasattr(model, "module"):
    model = model.module
parameters = {f"parameter {name}": parameter.detach().numpy() for name, parameter in model.named_parameters()}
np.savez(
    os.environ["WITNESS"].format(rank=os.environ.get("RANK", 0)),
    **parameters,
    losses=np.array(seen["losses"]),
    elsewhere=np.array(elsewhere(), dtype=str),
)
