"""One process among many: its rank, how it was started and attached to, what it says of itself, and what it prints."""
