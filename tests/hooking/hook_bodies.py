"""Hook bodies for the stand-in framework. Importing this module before a seam is used is what lazy loading must avoid."""

from typing import Any

noted: list[str] = []


def note(session: Any, wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Remember which call came by and hand on the result."""
    noted.append(wrapped.__name__)
    return wrapped(*args, **kwargs)


def install(session: Any, module: Any) -> None:
    """The other kind of body: called once with the imported module."""
    session.patch_log.replace(module, "evaluate", lambda step: ["installed", step])
    session.patch_log.replace(module, "brand_new", "put there by a hook")


def add_a_name(session: Any, module: Any) -> None:
    """A body that only adds a name."""
    module.a_name = "added"


def break_down(session: Any, module: Any) -> None:
    """A body with a bug, after it has changed something."""
    session.patch_log.replace(module, "evaluate", None)
    raise KeyError("a bug in a hook body")
