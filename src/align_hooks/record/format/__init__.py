"""The format of a record: names of files, structures of their JSON, digests, and definitions of numbers."""
