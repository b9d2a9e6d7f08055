"""The stages of the ladder, a file each or two of one kind; :mod:`.registry` has their order."""
