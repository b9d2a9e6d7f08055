"""MindFormers' PyNative trainer (``mindformers.pynative``, 2.0 and 2.1): no graph is compiled, so wrappers see every call."""
