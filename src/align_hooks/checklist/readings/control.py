"""Settings of MindFormers' callbacks."""

from __future__ import annotations

from typing import Any


def of_callback(found: object, kind: str, key: str) -> Any:
    """A setting of one of MindFormers' callbacks; what Megatron says stays as it is."""
    if not isinstance(found, list):
        return found
    return next((one.get(key) for one in found if isinstance(one, dict) and one.get("type") == kind), None)
