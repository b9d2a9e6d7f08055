"""A run on disk. No other package spells a path, a suffix or a key of the record."""
