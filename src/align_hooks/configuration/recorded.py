"""A recorded run as a configuration: what the frameworks held when they trained, and what was built from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from align_hooks.configuration.megatron import number
from align_hooks.configuration.values import FRAMEWORKS, MEGATRON, Configuration, ConfigurationError, Value
from align_hooks.errors import RecordError

RUN = "run.json"


def parsed(text: str, source: str) -> Configuration:
    """The configuration of what ``align-hooks run --arguments-only`` wrote.

    :raises ConfigurationError: it is something else.
    """
    try:
        facts = json.loads(text)
        own = {name: facts[name] for name in ("parsed", "side", "arguments")}
        return recorded({**own, **{name: _table(facts.get(name)) for name in ("versions", "environment")}}, source)
    except (ValueError, TypeError, LookupError, RecursionError, RecordError):
        raise ConfigurationError(f"{source} is not what align-hooks run --arguments-only writes; name a file that it wrote") from None


def recorded(facts: Mapping[str, Any], source: str) -> Configuration:
    """The configuration of a run, from its ``run.json``.

    :raises RecordError: it holds no arguments, as a directory made by hand does.
    """
    held = facts.get("arguments")
    if not isinstance(held, Mapping):
        raise RecordError(f"{source} holds no run.json with the framework's arguments; check the run's launch script instead")
    where = source if "parsed" in facts else RUN
    values = {str(name): Value(number(str(value)), where) for name, value in held.items()}
    environment = {
        str(name): Value(str(one.get("value")), where)
        for name, one in _table(facts.get("environment")).items()
        if isinstance(one, Mapping) and one.get("value") is not None
    }
    side = FRAMEWORKS.get(str(facts.get("side")), MEGATRON)
    return Configuration(side, source, values, environment, facts)


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
