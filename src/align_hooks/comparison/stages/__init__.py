"""The stages of the ladder, a file each; :mod:`.registry` has their order."""
