"""Replay of a recorded run in another one: batches, weights, gradients, experts and activations. Imports no framework."""
