"""What matters of MindSpeed's way to patch: what is found at a target is kept; a replacement or decorators go there, and to every
module that holds the same object under the same name; taking back goes by identity too, and spares MindSpeed's own modules."""

import importlib
import sys
from collections.abc import Callable
from typing import Any


def resolve(path: str) -> Any:
    """A module, or a class in one."""
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError:
        parent, _, name = path.rpartition(".")
        return getattr(importlib.import_module(parent), name)


class Patch:
    def __init__(self, target: str) -> None:
        self.place, _, self.name = target.rpartition(".")
        self.owner = self.original = self.replacement = self.final = None
        self.decorators: list[Callable[..., Any]] = []
        self.applied = False

    def apply_patch(self) -> None:
        if self.applied:
            return
        owner = resolve(self.place)
        current = getattr(owner, self.name)
        if self.owner is None:
            self.owner, self.original = owner, current
        self.final = self.replacement or self.original
        for decorator in self.decorators:
            self.final = decorator(self.final)
        setattr(self.owner, self.name, self.final)
        for module in list(sys.modules.values()):
            if id(getattr(module, self.name, None)) == id(current):
                setattr(module, self.name, self.final)
        self.applied = True

    def remove_patch(self) -> None:
        for key, module in list(sys.modules.items()):
            if "mindspeed" not in key and id(getattr(module, self.name, None)) == id(self.final):
                setattr(module, self.name, self.original)
        if isinstance(self.owner, type) and vars(self.owner).get(self.name) is self.final:
            setattr(self.owner, self.name, self.original)
        self.replacement, self.decorators, self.applied = None, [], False


class MindSpeedPatchesManager:
    patches: dict[str, Patch] = {}

    @staticmethod
    def register_patch(target: str, new: Callable[..., Any]) -> None:
        patch = MindSpeedPatchesManager.patches.setdefault(target, Patch(target))
        if not new.__name__.endswith("wrapper"):
            patch.replacement = new
        elif new not in patch.decorators:
            patch.decorators.append(new)
        patch.applied = False

    @staticmethod
    def apply_patches() -> None:
        for patch in MindSpeedPatchesManager.patches.values():
            patch.apply_patch()

    @staticmethod
    def remove_patches() -> None:
        for patch in MindSpeedPatchesManager.patches.values():
            patch.remove_patch()
