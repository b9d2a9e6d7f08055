"""The ladder: every stage, in the order of a training step, so that the first that differs is the earliest place where runs part."""

from __future__ import annotations

from align_hooks.comparison.stages.activation_gradients import activation_gradients as activation_gradients
from align_hooks.comparison.stages.activations import activations as activations
from align_hooks.comparison.stages.band import band as band
from align_hooks.comparison.stages.batches import batches as batches
from align_hooks.comparison.stages.clipping import clipping as clipping
from align_hooks.comparison.stages.curve import curve as curve
from align_hooks.comparison.stages.first_loss import first_loss as first_loss
from align_hooks.comparison.stages.first_updates import first_updates as first_updates
from align_hooks.comparison.stages.free_running import free_running as free_running
from align_hooks.comparison.stages.gradients import gradients as gradients
from align_hooks.comparison.stages.hyper_parameters import hyper_parameters as hyper_parameters
from align_hooks.comparison.stages.initial_optimizer_state import initial_optimizer_state as initial_optimizer_state
from align_hooks.comparison.stages.initial_weights import initial_weights as initial_weights
from align_hooks.comparison.stages.later_losses import later_losses as later_losses
from align_hooks.comparison.stages.local_norms import local_norms as local_norms
from align_hooks.comparison.stages.loss_terms import loss_terms as loss_terms
from align_hooks.comparison.stages.match import match as match
from align_hooks.comparison.stages.model_settings import model_settings as model_settings
from align_hooks.comparison.stages.routing import routing as routing
from align_hooks.comparison.stages.self_check import self_check as self_check
from align_hooks.comparison.stages.stage import Stage
from align_hooks.comparison.stages.state import state as state
from align_hooks.comparison.stages.token_losses import token_losses as token_losses
from align_hooks.comparison.stages.weights_after_update import weights_after_update as weights_after_update

LADDER: tuple[Stage, ...] = (
    *(match, self_check, state, hyper_parameters, batches, initial_weights, initial_optimizer_state),
    *(token_losses, routing, activations, loss_terms, first_loss),
    *(activation_gradients, local_norms, gradients),
    *(clipping, weights_after_update, first_updates),
    *(later_losses, curve, band, free_running, model_settings),
)
