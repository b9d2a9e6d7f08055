"""What every Python process under ``align-hooks run`` imports at its start: a watcher, and nothing else.

``run`` puts this folder first on PYTHONPATH. A ``sitecustomize`` that it hides runs first and takes its place in
``sys.modules``. A process that never imports a framework pays for a dictionary look-up an import; this file imports
nothing that an interpreter has not loaded already. It may be any interpreter that starts, so it is written for old ones.
"""

import os
import sys

SIDES = {"megatron.core": "torch", "megatron.training": "torch", "mindformers": "ms"}
"""The import that says which side a process is of."""
PROCESSES = "_ALIGN_HOOKS_PROCESSES"


class Watcher:
    """Waits on ``sys.meta_path`` for the first import of a framework, attaches its side, and sleeps from then on.

    It stays in the list: taking a finder out while another thread walks through it would hide the finder behind it.
    """

    asleep = False

    def find_spec(self, name, path=None, target=None):
        """None, which leaves every import to the finders behind; the one that wakes it is looked up anew, past the hooks."""
        if self.asleep or name not in SIDES:
            return None
        self.asleep = True
        attach(SIDES[name])
        from importlib.util import find_spec

        return find_spec(name)


def attach(side):
    """Attach one side to this process, or end it: once it trains it is too late."""
    try:
        from align_hooks.launcher import attach_on_import
    except ImportError as error:
        refuse(side, "%s cannot import align_hooks (%s); install align-hooks beside the framework" % (sys.executable, error))
    else:
        attach_on_import(side, lazily=True)


def refuse(side, message):
    """Say why, on stderr and to ``run``, and end the process."""
    import json

    sys.stderr.write("align_hooks: %s\n" % message)
    facts = {"pid": os.getpid(), "side": side, "rank": 0, "script": sys.argv[0], "ended": "refused", "problems": [message]}
    try:
        with open(os.path.join(os.environ[PROCESSES], "%d.json" % os.getpid()), "w") as file:
            json.dump(facts, file)
    finally:
        raise SystemExit(2)


def run_hidden():
    """Import the ``sitecustomize`` that python would have found without this one; what it raises is python's to report."""
    here = os.path.dirname(os.path.abspath(__file__))
    mine, path = sys.modules.pop("sitecustomize"), sys.path[:]
    sys.path[:] = [one for one in path if os.path.abspath(one) != here]
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
            sys.path.insert(0, here)


if __name__ == "sitecustomize":
    if sys.version_info >= (3, 8) and PROCESSES in os.environ:
        sys.meta_path.insert(0, Watcher())
    run_hidden()
