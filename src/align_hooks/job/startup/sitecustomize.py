"""What every Python process under ``align-hooks run`` imports at its start: a watcher, and nothing else.

``run`` puts this folder first on PYTHONPATH. A ``sitecustomize`` that it hides runs first and takes its place in
``sys.modules``. A process that never imports a framework pays for a dictionary look-up an import; this file imports
nothing that an interpreter has not loaded already. It may be any interpreter that starts, so it is written for old ones.
"""

import os
import sys

SIDES = {"megatron.core": "torch", "megatron.training": "torch", "mindspeed": "torch", "mindformers": "ms"}
"""The import by which a process is known to be of a side. MindSpeed first imports Megatron while it patches, which is too late.
No hook's trigger is among them: these modules are in ``sys.modules``, empty, when their side is attached."""
PROCESSES = "_ALIGN_HOOKS_PROCESSES"


class Watcher:
    """Waits on ``sys.meta_path`` until a framework is really executed, attaches its side first, and sleeps from then on.

    Looking up whether a framework is there executes nothing, so the spec is handed on with a loader that attaches.
    The watcher stays in the list: another thread may be walking through it, and would skip the finder behind a finder that is taken out.
    """

    asleep = False

    def find_spec(self, name, path=None, target=None):
        """None, which leaves the import to the finders behind, except for a framework."""
        if self.asleep or name not in SIDES:
            return None
        finders = [getattr(finder, "find_spec", None) for finder in sys.meta_path if finder is not self]
        spec = next(filter(None, (find(name, path, target) for find in finders if find)), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = Attaching(spec.loader, SIDES[name], self)
        return spec


class Attaching:
    """The loader of a framework until it executes: it attaches, and hands the module to the real loader, for which it passes."""

    def __init__(self, loader, side, watcher):
        self.loader, self.side, self.watcher = loader, side, watcher

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def exec_module(self, module):
        """Attach, then do what was asked."""
        module.__loader__ = module.__spec__.loader = self.loader
        if not self.watcher.asleep:
            self.watcher.asleep = True
            attach(self.side)
        self.loader.exec_module(module)


def attach(side):
    """Attach a side to this process, or end the process: once it trains it is too late.

    Any error ends it: a script that does without the framework where an import fails would train without hooks.
    """
    try:
        from align_hooks.job.entry import attach_on_import

        attach_on_import(side, lazily=True)
    except Exception as error:
        refuse(side, "%s cannot attach align_hooks (%r); install align-hooks beside the framework" % (sys.executable, error))


def refuse(side, message):
    """Print the reason on stderr, leave it for ``run``, and end the process."""
    import json

    sys.stderr.write("align_hooks: %s\n" % message)
    facts = {"pid": os.getpid(), "side": side, "rank": 0, "script": sys.argv[0], "ended": "refused", "problems": [message]}
    try:
        path = os.path.join(os.environ[PROCESSES], "%d.json" % os.getpid())
        with open(path + ".new", "w") as file:
            json.dump(facts, file)
        os.replace(path + ".new", path)
    finally:
        raise SystemExit(2)


def run_hidden():
    """Import the ``sitecustomize`` that python would have found without this file; python reports what it raises."""
    folder = os.path.dirname(os.path.abspath(__file__))
    mine, path = sys.modules.pop("sitecustomize"), sys.path[:]
    sys.path[:] = [place for place in path if os.path.abspath(place) != folder]
    seen = sys.path[:]
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        if getattr(error, "name", None) != "sitecustomize":
            raise
        sys.modules["sitecustomize"] = mine
    finally:
        if sys.path == seen:
            sys.path[:] = path
        else:  # the hidden one changed it, and its changes stay
            sys.path.insert(0, folder)


if __name__ == "sitecustomize":
    if sys.version_info >= (3, 8) and PROCESSES in os.environ:
        sys.meta_path.insert(0, Watcher())
    run_hidden()
