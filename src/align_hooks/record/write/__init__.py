"""Recording: one rank writes its part of a run, atomically."""
