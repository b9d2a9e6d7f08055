"""Names of stages as messages, by the names that a comparison has."""

from __future__ import annotations

import re

from align_hooks.messages import Argument, message

NAMES: dict[str, Argument] = {
    "match": message("stage.match"),
    "self-check": message("stage.self_check"),
    "hyper-parameters": message("stage.hyper_parameters"),
    "batches": message("stage.batches"),
    "initial weights": message("stage.initial_weights"),
    "initial optimizer state": message("stage.initial_optimizer_state"),
    "token losses": message("stage.token_losses"),
    "step-0 loss": message("stage.step_0_loss"),
    "local norms": message("stage.local_norms"),
    "gradients": message("stage.gradients"),
    "clipping": message("stage.clipping"),
    "weights after an update": message("stage.weights_after_an_update"),
    "first updates": message("stage.first_updates"),
    "later losses": message("stage.later_losses"),
    "curve": message("stage.curve"),
    "free-running steps": message("stage.free_running_steps"),
    "model settings": message("stage.model_settings"),
}
FIRST_LOSS = re.compile(r"first loss \(step (\d+)\)")


def named(stage: str) -> Argument:
    """The message that names a stage; a first loss has its step in its name. A name that no stage has stays as it is."""
    first = FIRST_LOSS.fullmatch(stage)
    return message("stage.first_loss", step=int(first[1])) if first else NAMES.get(stage, stage)
