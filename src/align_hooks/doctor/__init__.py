"""An examination of a machine before a run is started. Only its child processes import a framework."""
