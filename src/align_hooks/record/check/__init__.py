"""Whether a run is whole, holds what was asked for, and does not contradict itself."""
