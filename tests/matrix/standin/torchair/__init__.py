"""Stands for torchair: a name of any submodule is a decorator that changes nothing. Graph mode is not tried."""

import importlib.abc
import importlib.machinery
import sys
import types


class Names(types.ModuleType):
    """A module in which every name is there."""

    __path__: list[str] = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {"__init__": lambda self, *args, **kwargs: None, "__call__": lambda self, function=None, *args: function})


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds every submodule."""

    def find_spec(self, name, path=None, target=None):
        return importlib.machinery.ModuleSpec(name, self, is_package=True) if name.startswith("torchair.") else None

    def create_module(self, spec):
        return Names(spec.name)

    def exec_module(self, module):
        pass


sys.meta_path.append(Finder())


def __getattr__(name):
    return Names.__getattr__(None, name)
