"""Reading a run back: files, rows, and quantities put together from all ranks."""
