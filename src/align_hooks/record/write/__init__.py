"""Recording: one rank writes its part of a run, whole or not at all."""
