"""From the stages to what an expert would say: what shows first, where it sits, what it likely is, what to do next."""
