"""A recorded run as a configuration: the framework's arguments as it trained, and what was built from them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from align_hooks.configuration import mindspeed
from align_hooks.configuration.hybrid import as_blocks
from align_hooks.configuration.megatron import FLAGS, number
from align_hooks.configuration.pynative import PYNATIVE, as_graph, is_pynative
from align_hooks.configuration.values import (
    FRAMEWORKS,
    MEGATRON,
    MINDFORMERS,
    Configuration,
    ConfigurationError,
    Facts,
    Setting,
    SourceLocation,
    Value,
)
from align_hooks.errors import RecordError
from align_hooks.regular import whole_number

RUN = "run.json"


def parsed(text: str, source: str) -> Configuration:
    """Return the configuration in a file of ``align-hooks run --arguments-only``; raises ConfigurationError for any other file."""
    try:
        facts = json.loads(text, parse_int=whole_number)
        needed = {name: facts[name] for name in ("parsed", "side", "arguments")}
        return recorded({**needed, **{name: _table(facts.get(name)) for name in ("versions", "environment")}}, source)
    except (ValueError, TypeError, LookupError, RecursionError, RecordError):
        raise ConfigurationError(f"{source} is not what align-hooks run --arguments-only writes; name a file that it wrote") from None


def recorded(facts: Facts, source: str) -> Configuration:
    """Return the configuration of a run from its ``run.json``; raises RecordError for facts without arguments."""
    arguments = facts.get("arguments")
    if not isinstance(arguments, Mapping):
        raise RecordError(f"{source} holds no run.json with the framework's arguments; check the run's launch script instead")
    place = SourceLocation(source if "parsed" in facts else RUN)
    values = {str(name): Value(number(str(value)), place) for name, value in arguments.items()}
    environment = {
        str(name): Value(str(variable.get("value")), place)
        for name, variable in _table(facts.get("environment")).items()
        if isinstance(variable, Mapping) and variable.get("value") is not None
    }
    side = FRAMEWORKS.get(str(facts.get("side")), MEGATRON)
    fork = mindspeed.fork_of_record(values, FLAGS) if side == MEGATRON else ""
    if side == MINDFORMERS and is_pynative(values):
        return Configuration(side, source, as_graph(values), environment, facts, trainer=PYNATIVE)
    values = mindspeed.by_attribute(values) if fork else values
    return Configuration(side, source, as_blocks(values) if side == MEGATRON else values, environment, facts, fork=fork)


def _table(value: Setting) -> Facts:
    return value if isinstance(value, Mapping) else {}
