"""Mutated records, configurations and logs, fed to everything that reads them."""
