"""One process among many: its rank, its streams, the script that it runs, and the state that it reports."""
