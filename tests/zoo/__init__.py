"""Misalignments planted on real runs, and honest differences, by which ``compare`` is judged."""
