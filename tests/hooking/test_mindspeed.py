"""MindSpeed before, after and around attaching: its functions are in place, ours are outside of them, and each call counts once.

The stand-in patches as MindSpeed does (``mindspeed/``).
"""

from textwrap import dedent

import pytest

from chosen import every

from .conftest import Observe

HOOKS = dedent("""
    from align_hooks.torch_side.catalogue import HOOKS as ALL
    hooks = [hook("train"), hook("evaluate", "evaluate"), hook("step", "Optimizer.step"), hook("fused", "FusedAdam.step")]
    hooks += [hook for hook in ALL if hook.name == "mindspeed"]
""")
ATTACH, PATCH = "attach(hooks, session)", "import mindspeed.megatron_adaptor"
ATTACHED = f"{ATTACH}; import stand_in.consumer; from mindspeed.patch_utils import MindSpeedPatchesManager as manager, Patch"
ORDERS = {
    "attach, MindSpeed": f"{ATTACH}; {PATCH}; import stand_in.consumer",
    "attach, framework, MindSpeed": f"{ATTACH}; import stand_in.consumer; {PATCH}",
    "MindSpeed, attach": f"{PATCH}; {ATTACH}; import stand_in.consumer",
    "framework, MindSpeed, attach": f"import stand_in.consumer; {PATCH}; {ATTACH}",
    "framework, attach, MindSpeed": f"import stand_in.consumer; {ATTACH}; {PATCH}",
    "attach, MindSpeed, again": f"{ATTACH}; {PATCH}; mindspeed.megatron_adaptor.repatch(); import stand_in.consumer",
    "MindSpeed, attach, again": f"{PATCH}; {ATTACH}; mindspeed.megatron_adaptor.repatch(); import stand_in.consumer",
    "MindSpeed, attach, once more": f"{PATCH}; {ATTACH}; mindspeed.megatron_adaptor.patch(); import stand_in.consumer",
}
USE = dedent("""
    import stand_in, stand_in.seams as seams
    results = [seams.train(1), stand_in.train(2), seams.evaluate(3), seams.Optimizer().step(4), seams.Adam().step(5)]
    results += [seams.FusedAdam().step(6), *stand_in.consumer.epoch()]
""")


def lines(*parts: str) -> str:
    """A snippet of parts, each with an indentation of its own."""
    return "\n".join(map(dedent, parts))


@pytest.fixture
def hooked(observe: Observe) -> Observe:
    """As ``observe``, with hooks that are ready to be attached."""
    return lambda *parts: observe(lines(HOOKS, *parts))


@pytest.mark.parametrize("order", every(6, ORDERS.values()), ids=ORDERS)
def test_in_every_order_its_functions_are_called_and_each_call_is_counted_once(observe: Observe, hooked: Observe, order: str) -> None:
    """MindSpeed goes by names: ``run_step``, taken before it came, stays Megatron's own, and is no seam of ours then either."""
    alone = observe(lines(order.replace(ATTACH, "pass"), USE, "seen = results"))
    seen = hooked(order, USE, "seen = dict(results=results, calls=session.patch_log.calls, unfired=session.patch_log.unfired())")
    assert seen["results"] == alone
    assert alone[:3] == [["decorated", "trained", 1, 1.0], ["decorated", "trained", 2, 1.0], ["replaced", "trained", 3, 1.0]]
    assert alone[3:6] == [["replaced step", 4], ["replaced step", 5], ["its own", "replaced step", 6]]
    calls = seen["calls"]
    assert (calls["evaluate"], calls["step"], calls["fused"], seen["unfired"]) == (2, 3, 1, [])
    assert calls["train"] == (3 if alone[6][0] == "decorated" else 2)


@pytest.mark.parametrize("order", every(6, ORDERS.values()), ids=ORDERS)
def test_undone_the_framework_is_as_mindspeed_left_it(observe: Observe, hooked: Observe, order: str) -> None:
    mine = """
        from align_hooks.hooking.patch_log import Wrapper
        ours = [name for name, value in everything().items() if isinstance(value, Wrapper)]
        seen = dict(results=results, calls=sum(session.patch_log.calls[name] for name in ("train", "evaluate", "step", "fused")), ours=ours)
    """
    seen = hooked(order, "session.patch_log.undo()", USE, mine)
    alone = observe(lines(order.replace(ATTACH, "pass"), USE, "seen = results"))
    assert seen == {"results": alone, "calls": 0, "ours": []}


def test_its_decorators_are_given_the_framework_and_not_our_wrappers(hooked: Observe) -> None:
    """Otherwise taking its patches back would leave ours in the framework's place, and a call would count twice."""
    assert hooked(f"""
        import stand_in.consumer
        {ATTACH}; {PATCH}
        from mindspeed.patch_utils import MindSpeedPatchesManager as manager
        seen = [type(patch.original).__name__ for patch in manager.patches.values()]
    """) == ["function", "function", "function", "type"]


def test_a_patch_applied_alone_is_under_ours_too(hooked: Observe) -> None:
    assert hooked(f"""
        {ATTACHED}
        patch = Patch("stand_in.seams.evaluate")
        patch.replacement = lambda step: ["alone", step]
        patch.apply_patch()
        seen = [stand_in.consumer.epoch()[1], session.patch_log.calls["evaluate"]]
    """) == [["alone", 0], 1]


def test_patching_that_fails_leaves_our_wrappers_on(hooked: Observe) -> None:
    assert hooked(f"""
        {ATTACHED}
        manager.register_patch("stand_in.seams.nothing_of_the_kind", lambda: None)
        error = attempt(manager.apply_patches)
        seen = [error[0], stand_in.consumer.epoch()[1], session.patch_log.calls["evaluate"]]
    """) == ["AttributeError", ["evaluated", 0], 1]


def test_a_target_that_its_patch_took_away_is_said_and_the_others_are_wrapped(hooked: Observe) -> None:
    seen = hooked(f"""
        {ATTACHED}
        manager.register_patch("stand_in.seams.Optimizer", lambda rate: rate)
        error = attempt(manager.apply_patches)
        stand_in.consumer.epoch()
        calls = session.patch_log.calls
        seen = [error, session.patch_log.failed, calls["train"], calls["evaluate"], session.patch_log.facts()["step"]["state"]]
    """)
    (kind, message), failed, train, evaluate, state = seen
    assert (kind, train, evaluate, state) == ("AttachError", 1, 1, "failed")
    assert failed == {"step": message} and "Optimizer.step" in message


def test_what_somebody_else_put_over_ours_stays_and_counts_once(hooked: Observe) -> None:
    assert hooked(f"""
        {ATTACH}
        import stand_in.seams as seams
        before = seams.train
        seams.train = lambda step: ["theirs", *before(step)]
        {PATCH}
        seen = [seams.train(1), session.patch_log.calls["train"]]
    """) == [["decorated", "theirs", "trained", 1, 1.0], 1]


def test_a_manager_without_the_doors_is_refused(hooked: Observe) -> None:
    seen = hooked("""
        import sys, types
        sys.modules["mindspeed.patch_utils"] = types.ModuleType("mindspeed.patch_utils")
        seen = attempt(lambda: attach(hooks, session))
    """)
    assert seen[0] == "AttachError" and "mindspeed.patch_utils has no MindSpeedPatchesManager.apply_patches" in seen[1]
