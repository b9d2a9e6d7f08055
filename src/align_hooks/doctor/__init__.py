"""What a machine has, what fits, and what stands in the way, before a run is started. Imports no framework; its children do."""
