"""A hook that cannot be attached: loud at once, and remembered, because a second import succeeds unhooked."""

import pytest

from chosen import every

from .conftest import Observe

ATTACH_FIRST = "attach(hooks, session); import stand_in.seams"
IMPORT_FIRST = "import stand_in.seams; attach(hooks, session)"


def failing(hooks: str, order: str = ATTACH_FIRST) -> str:
    """A snippet: the order ends with an error, which the framework swallows, and the import is tried again."""
    return f"""
        hooks = [{hooks}]
        def load():
            {order}
        error = attempt(load)
        import stand_in.seams
        seen = dict(error=error, failed=session.patch_log.failed, unfired=session.patch_log.unfired(), facts=session.patch_log.facts())
        seen |= dict(problems=finish(session), train=stand_in.seams.train(1))
    """


TARGETS = ("trian", "Optimizer.stp", "Optimiser.step", "Optimiser.__init__", "train.inner.step")


@pytest.mark.parametrize(("target", "order"), every(2, [("trian", IMPORT_FIRST), *((one, ATTACH_FIRST) for one in TARGETS)]))
def test_a_wrong_target_names_hook_place_and_range_and_is_remembered_and_nothing_is_hooked_by_a_second_import(
    observe: Observe, target: str, order: str
) -> None:
    seen = observe(failing(f'hook("training", "{target}")', order))
    kind, message = seen["error"]
    assert kind == "AttachError"
    assert all(part in message for part in ("'training'", "stand_in.seams", target, ">=1.5,<2")), message
    assert "\n" not in message
    assert seen["failed"] == {"training": message}
    assert seen["unfired"] == seen["problems"] == [message]
    assert seen["facts"] == {"training": {"state": "failed", "calls": 0}}
    assert seen["train"] == ["trained", 1, 1.0]


@pytest.mark.parametrize(("version", "order"), [("2.0.1", ATTACH_FIRST), ("2.0.1", IMPORT_FIRST), ("master", ATTACH_FIRST)])
def test_a_version_outside_the_range_or_that_cannot_be_read_is_refused_and_remembered(observe: Observe, version: str, order: str) -> None:
    seen = observe(failing("hook()", order), STAND_IN_VERSION=version)
    kind, message = seen["error"]
    assert kind == "UnsupportedVersion"
    assert all(part in message for part in ("'training'", "stand-in", ">=1.5,<2", version)), message
    assert seen["unfired"] == [message]
    assert seen["train"] == ["trained", 1, 1.0]


def test_every_build_of_a_version_is_judged_like_its_release(observe: Observe) -> None:
    inside = ["1.5", "1.5.0rc2", "1.6.0.dev1", "1.9.7+cu130", "1.10", "r1.6.0"]
    outside = ["1.4.9", "2.0.0", "2.0.0rc1", "2.1.0.dev3+git", "10.0"]
    assert (
        observe(f"""
        import stand_in.version
        from align_hooks.errors import UnsupportedVersion
        from align_hooks.hooking.attach import check_version
        seen = []
        for stand_in.version.__version__ in {inside + outside}:
            try:
                check_version(hook())
            except UnsupportedVersion:
                continue
            seen.append(stand_in.version.__version__)
    """)
        == inside
    )


def test_what_cannot_be_broken_off_is_refused_before_it_is_imported(observe: Observe) -> None:
    """By its metadata: the stand-in has none, so one that is installed is put in its place."""
    assert observe("""
        import sys
        from msgspec import structs
        from align_hooks.errors import UnsupportedVersion
        from align_hooks.hooking import attach
        attach.UNBREAKABLE = ("packaging", "no-such-package")
        sys.modules.pop("packaging")
        seen = []
        for package, supports in (("packaging", "<1"), ("packaging", ">1"), ("no-such-package", "<1")):
            try:
                attach.attach([structs.replace(hook(), package=package, supports=supports, trigger="never")], session)
            except UnsupportedVersion as error:
                seen.append(str(error).partition(", found")[0])
    """) == ["hook 'training' was proven on packaging <1"]


BODIES = ("hook_bodies:break_down", "hook_bodies:no_such_function", "no_such_module:install")


@pytest.mark.parametrize(("body", "order"), every(2, [(BODIES[0], IMPORT_FIRST), *((one, ATTACH_FIRST) for one in BODIES)]))
def test_a_body_that_raises_while_it_is_installed_is_remembered(observe: Observe, body: str, order: str) -> None:
    """Frameworks wrap imports in broad handlers: the raise alone would be swallowed, and the run would be silently unhooked."""
    seen = observe(failing(f'hook("installer", targets=(), handler="{body}")', order))
    assert list(seen["failed"]) == ["installer"]
    assert len(seen["unfired"]) == 1 and "installer" in seen["unfired"][0]
    assert seen["facts"] == {"installer": {"state": "failed", "calls": 0}}


@pytest.mark.parametrize(
    "hooks",
    ['hook("training", "train", "Optimizer.step", "Adam.stp")', 'hook(), hook("installer", targets=(), handler="hook_bodies:break_down")'],
    ids=["a later target is missing", "a later body raises"],
)
def test_what_a_hook_did_before_it_failed_half_way_can_be_undone(observe: Observe, hooks: str) -> None:
    assert observe(f"""
        import stand_in.consumer
        before = everything()
        error = attempt(lambda: attach([{hooks}], session))
        session.patch_log.undo()
        after = everything()
        seen = [sorted(after) == sorted(before), [name for name in before if after[name] is not before[name]]]
    """) == [True, []]


def test_hooks_behind_a_failed_one_on_the_same_module_are_accounted_for(observe: Observe) -> None:
    seen = observe(failing('hook("first", "trian"), hook("second", "evaluate")'))
    assert len(seen["unfired"]) == 2
    assert "'first'" in seen["unfired"][0] and "'second'" in seen["unfired"][1]
