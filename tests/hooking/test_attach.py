"""Attaching, in every order of attach and import."""

from importlib.metadata import version

import pytest

from .conftest import Observe, in_either_order


@in_either_order("stand_in.consumer")
def test_names_that_others_took_from_the_module_are_wrapped_in_either_order(observe: Observe, order: str) -> None:
    seen = observe(f"""
        hooks = [hook()]
        {order}
        import stand_in, stand_in.seams
        results = [stand_in.seams.train(1), stand_in.train(2, scale=0.5), stand_in.consumer.run_step(3), stand_in.consumer.epoch()]
        import hook_bodies
        seen = [results, hook_bodies.noted, session.patch_log.calls["training"]]
    """)
    results = [["trained", 1, 1.0], ["trained", 2, 0.5], ["trained", 3, 1.0], [["trained", 0, 1.0], ["evaluated", 0]]]
    assert seen == [results, ["train"] * 4, 4]


@pytest.mark.parametrize(
    ("before", "after"),
    [("from stand_in.seams import train", "pass"), ("import stand_in.seams", "from stand_in.consumer import run_step as train")],
    ids=["by the script before attaching", "after attaching to an imported module"],
)
def test_a_name_taken_from_the_module_is_wrapped(observe: Observe, before: str, after: str) -> None:
    assert (
        observe(f"""
        {before}
        attach([hook()], session)
        {after}
        train(1)
        seen = session.patch_log.calls["training"]
    """)
        == 1
    )


def test_names_that_look_like_the_target_and_are_not_it_stay_untouched(observe: Observe) -> None:
    assert observe("""
        import sys, types, stand_in.seams
        other = types.ModuleType("other")
        other.train = lambda step: ["another train", step]
        sys.modules["other"], before = other, other.train
        attach([hook()], session)
        seen = [other.train is before, stand_in.seams.evaluate(1)]
    """) == [True, ["evaluated", 1]]


def test_a_hook_that_was_not_asked_for_leaves_everything_alone(observe: Observe) -> None:
    assert observe("""
        import sys
        finders = list(sys.meta_path)
        attach([hook(asked=lambda settings: settings.seed == 2)], session)
        import stand_in.seams
        seen = [type(stand_in.seams.train).__name__, sys.meta_path == finders, session.patch_log.facts(), session.patch_log.unfired()]
    """) == ["function", True, {}, []]


STEPS = {"attach": "attach(hooks, session)", "import": "import stand_in.consumer"}


@pytest.mark.parametrize("order", ["attach, attach, import", "attach, import, attach", "import, attach, attach"])
def test_attaching_twice_wraps_once(observe: Observe, order: str) -> None:
    assert observe(f"""
        hooks = [hook("training", "train", "Optimizer.step", "Adam.build")]
        {"; ".join(STEPS[step] for step in order.split(", "))}
        from stand_in.seams import Adam, train
        train(0), Adam().step(1), Adam.build(2), stand_in.consumer.epoch()
        import hook_bodies
        seen = dict(noted=hook_bodies.noted, calls=session.patch_log.calls["training"], unfired=session.patch_log.unfired())
    """) == {"noted": ["train", "step", "build", "train"], "calls": 4, "unfired": []}


USES = {
    "().step(1)": lambda name: [name, "step", 1, 0.1],
    "(0.5).step(2)": lambda name: [name, "step", 2, 0.5],
    ".step(cls(), 3)": lambda name: [name, "step", 3, 0.1],
    ".clip(4)": lambda name: ["clip", 4],
    "().clip(5)": lambda name: ["clip", 5],
    ".build(6)": lambda name: [name, "build", 6],
    "().build(7)": lambda name: [name, "build", 7],
}


@in_either_order()
@pytest.mark.parametrize("owner", ["Optimizer", "Adam"], ids=["owned", "inherited"])
def test_methods_of_every_kind_keep_their_meaning(observe: Observe, owner: str, order: str) -> None:
    """``clip`` is a staticmethod and ``build`` a classmethod; on Adam all are inherited, and FusedAdam inherits from Adam."""
    seen = observe(f"""
        hooks = [hook(name, "{owner}." + name) for name in ("step", "clip", "build", "__init__")]
        {order}
        seen = {{}}
        for cls in (stand_in.seams.Optimizer, stand_in.seams.Adam, stand_in.seams.FusedAdam):
            for use in {list(USES)}:
                try:
                    seen[cls.__name__ + use] = eval("cls" + use)
                except TypeError as error:
                    seen[cls.__name__ + use] = str(error)
        seen["calls"] = session.patch_log.calls
    """)
    classes = 3 if owner == "Optimizer" else 2
    assert seen.pop("calls") == {"step": 3 * classes, "clip": 2 * classes, "build": 2 * classes, "__init__": 5 * classes}
    assert seen == {name + use: result(name) for name in ("Optimizer", "Adam", "FusedAdam") for use, result in USES.items()}


def test_what_a_wrapped_function_returns_and_raises_is_the_very_object(observe: Observe) -> None:
    assert observe("""
        import stand_in.seams
        answer, refusal = [], OSError("no space left")
        def original(step):
            if step:
                raise refusal
            return answer
        stand_in.seams.evaluate, kept = original, [original]
        attach([hook("evaluation", "evaluate")], session)
        try:
            stand_in.seams.evaluate(1)
        except OSError as error:
            raised = error
        seen = [stand_in.seams.evaluate is kept[0], stand_in.seams.evaluate(0) is answer, raised is refusal]
    """) == [False, True, True]


def test_a_wrapped_function_still_looks_like_itself(observe: Observe) -> None:
    look = """
        import inspect
        from stand_in.seams import Optimizer, train
        seen = [train.__name__, train.__qualname__, train.__module__, train.__doc__, inspect.getsource(train), str(train.__defaults__)]
        seen += [str(inspect.signature(train)), str(inspect.signature(Optimizer.__init__)), inspect.isfunction(train), callable(train)]
    """
    attached = 'attach([hook("training", "train", "Optimizer.__init__")], session)\n'
    assert observe(attached + "\n".join(line.strip() for line in look.splitlines())) == observe(look)


def test_a_wrapped_function_can_still_be_pickled_by_name_and_copied(observe: Observe) -> None:
    """As plain functions can: spawned workers are sent their target, and configurations that hold functions are deep-copied."""
    assert observe("""
        attach([hook()], session)
        import copy, pickle
        from stand_in.seams import train
        seen = [pickle.loads(pickle.dumps(train)) is train, copy.deepcopy(train) is train]
    """) == [True, True]


def test_the_body_is_not_loaded_before_the_first_call(observe: Observe) -> None:
    assert observe("""
        import sys
        attach([hook("training", "train", "Optimizer.step")], session)
        import stand_in.seams
        early = "hook_bodies" in sys.modules
        stand_in.train(0), stand_in.train(1), stand_in.seams.Optimizer().step(2)
        import hook_bodies
        seen = [early, len(hook_bodies.noted)]
    """) == [False, 3]


@in_either_order()
def test_a_hook_without_targets_is_handed_the_module_once(observe: Observe, order: str) -> None:
    assert observe(f"""
        hooks = [hook("installer", targets=(), handler="hook_bodies:install")]
        {order}
        import stand_in.consumer
        seen = [stand_in.seams.evaluate(1), stand_in.consumer.epoch()[1], session.patch_log.facts(), session.patch_log.unfired()]
    """) == [["installed", 1], ["installed", 0], {"installer": {"state": "attached", "calls": 1}}, []]


@in_either_order(attach="register_optional(hooks, session)")
def test_a_name_that_is_offered_is_added_with_no_account(observe: Observe, order: str) -> None:
    assert observe(f"""
        from align_hooks.hooking.attach import register_optional
        session = new_session(Settings())
        hooks = [hook(targets=(), handler="hook_bodies:add_a_name")]
        {order}
        seen = [stand_in.seams.a_name, session.patch_log.pending, session.patch_log.attached, session.patch_log.failed]
    """) == ["added", {}, {}, {}]


def test_a_name_is_not_added_to_a_version_on_which_it_was_not_proven_and_nobody_is_told(observe: Observe) -> None:
    seen = observe("""
        from align_hooks.hooking.attach import register_optional
        register_optional([hook(targets=(), handler="hook_bodies:add_a_name", supports=">=9")], session)
        import stand_in.seams
        seen = hasattr(stand_in.seams, "a_name")
    """)
    assert seen is False


def test_versions_are_those_of_packages_that_were_imported(observe: Observe) -> None:
    """Stated, by metadata of the installation that the module lies in, or unknown; a module of no file is another tool's dummy."""
    seen = observe("""
        import sys, types, wrapt, msgspec, stand_in, tempfile, importlib, pathlib
        from align_hooks.hooking.attach import versions_beside
        place = tempfile.mkdtemp()
        for name in ("iniconfig", "nowhere"):
            pathlib.Path(place, name).mkdir()
            pathlib.Path(place, name, "__init__.py").write_text("")
        sys.path.insert(0, place)
        sys.modules.pop("iniconfig", None)
        import iniconfig, nowhere, packaging
        del packaging.__version__
        sys.modules["apex"] = types.ModuleType("apex")
        before = set(sys.modules)
        found = versions_beside(["wrapt", "iniconfig", "nowhere", "packaging", "apex", "hypothesis"])
        seen = [found, found["wrapt"] == wrapt.__version__, sorted(set(sys.modules) - before)]
    """)
    assert seen[0].keys() == {"wrapt", "iniconfig", "nowhere", "packaging"}
    assert (seen[0]["iniconfig"], seen[0]["nowhere"]) == ("unknown", "unknown")  # the metadata are of another iniconfig
    assert seen[0]["packaging"] == version("packaging")
    assert seen[1] and not {name for name in seen[2] if name.startswith(("hypothesis", "apex"))}
