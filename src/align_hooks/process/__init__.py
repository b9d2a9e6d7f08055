"""One process among many: its rank, its streams, the script that it runs, and what it tells of itself."""
