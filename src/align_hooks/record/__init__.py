"""What a run looks like on disk. The only room that spells a path, a suffix or a key of the record."""
