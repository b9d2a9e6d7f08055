"""Curves that a finished run left in other tools' files: TensorBoard's events, CSV and JSON lines, as W&B exports them."""
