"""Signed sums of every gradient and every weight, in the place of the tensors; one variable asks for both."""

from __future__ import annotations

from align_hooks.quantities.gradients import GRADIENTS
from align_hooks.quantities.kind import Quantity, Switch
from align_hooks.quantities.weights import WEIGHTS

SWITCH = Switch("sketches", "record 16 signed sums of every gradient and weight: compare's with no tensor stored")

GRADIENT_SKETCHES = Quantity("sketches/gradients", SWITCH, of_gradients=True, trainable=True, sketch_of=GRADIENTS)
WEIGHT_SKETCHES = Quantity("sketches/weights", SWITCH, is_state=True, sketch_of=WEIGHTS)
