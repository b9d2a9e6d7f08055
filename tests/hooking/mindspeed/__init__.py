"""A stand-in that patches as MindSpeed does, and no more of it. It says no version, as MindSpeed says none."""
