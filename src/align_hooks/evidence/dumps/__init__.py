"""Dumps of other tools, read as what they say of the points of a model. One file a tool; none is imported, and nothing is unpickled."""
