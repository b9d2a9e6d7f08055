"""Whether a long run stays in the band that repeats of its reference make: signed differences, their model, and two tests of it."""
