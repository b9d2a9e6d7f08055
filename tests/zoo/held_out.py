"""What the cases of ``held_out.txt`` are held against. All that ``cases.py`` has are of one rank, three steps and no dropout."""

from zoo.case import MINDFORMERS, Flags, Reference

DROPOUT: Flags = {"--attention-dropout": "0.1", "--hidden-dropout": "0.1"}
FOUR: Flags = {"--train-iters": "4", "--lr-decay-style": "linear", "--min-lr": "0"}

REFERENCES = {
    "four": Reference(FOUR),
    "dropped": Reference({**FOUR, **DROPOUT}, fed="four"),
    "dropped_on_two": Reference(DROPOUT, fed="plain", ranks=2),
    "dropped_in_sequence": Reference({**DROPOUT, "--tensor-model-parallel-size": "2", "--sequence-parallel": ""}, fed="plain", ranks=2),
    "per_token": Reference({"--calculate-per-token-loss": "", "--micro-batch-size": "4"}, fed="plain", batches="masked"),
    "tied": Reference({"--untie-embeddings-and-output-weights": None}),
    "split": Reference({**FOUR, "--split": "90,5,5"}),
    "mindformers": Reference(fed="plain", side=MINDFORMERS),
}
"""A case of Megatron has its reference's flags and ranks, beside its own."""
