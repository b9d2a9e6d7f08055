"""Two runs in, a verdict out. Arithmetic on arrays and rows: no paths, no printing, no framework."""
