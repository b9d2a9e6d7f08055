"""The ladder: every stage, in the order of a training step, so that the first that differs is the earliest place where runs part."""

from __future__ import annotations

from align_hooks.compare.stages.activation_gradients import activation_gradients
from align_hooks.compare.stages.activations import activations
from align_hooks.compare.stages.band import band
from align_hooks.compare.stages.batches import batches
from align_hooks.compare.stages.clipping import clipping
from align_hooks.compare.stages.curve import curve
from align_hooks.compare.stages.first_loss import first_loss
from align_hooks.compare.stages.first_updates import first_updates
from align_hooks.compare.stages.free_running import free_running
from align_hooks.compare.stages.gradients import gradients
from align_hooks.compare.stages.hyper_parameters import hyper_parameters
from align_hooks.compare.stages.initial_optimizer_state import initial_optimizer_state
from align_hooks.compare.stages.initial_weights import initial_weights
from align_hooks.compare.stages.later_losses import later_losses
from align_hooks.compare.stages.local_norms import local_norms
from align_hooks.compare.stages.loss_terms import loss_terms
from align_hooks.compare.stages.match import match
from align_hooks.compare.stages.model_settings import model_settings
from align_hooks.compare.stages.routing import routing
from align_hooks.compare.stages.self_check import self_check
from align_hooks.compare.stages.stage import Stage
from align_hooks.compare.stages.state import state
from align_hooks.compare.stages.token_losses import token_losses
from align_hooks.compare.stages.weights_after_update import weights_after_update

LADDER: tuple[Stage, ...] = (
    match,
    self_check,
    state,
    hyper_parameters,
    batches,
    initial_weights,
    initial_optimizer_state,
    token_losses,
    routing,
    activations,
    loss_terms,
    first_loss,
    activation_gradients,
    local_norms,
    gradients,
    clipping,
    weights_after_update,
    first_updates,
    later_losses,
    curve,
    band,
    free_running,
    model_settings,
)
