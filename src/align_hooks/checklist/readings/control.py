"""Settings of MindFormers' callbacks."""

from __future__ import annotations

from align_hooks.checklist.row import Form
from align_hooks.configuration.values import Setting


def of_callback(kind: str, key: str) -> Form:
    """How a setting of one of MindFormers' callbacks is found in their list; what Megatron says stays as it is."""

    def form(value: Setting) -> Setting:
        if not isinstance(value, list):
            return value
        return next((callback.get(key) for callback in value if isinstance(callback, dict) and callback.get("type") == kind), None)

    return form
