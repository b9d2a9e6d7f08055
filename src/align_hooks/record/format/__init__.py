"""What stands in a record: names of files, structures of their JSON, digests, and what each number is."""
