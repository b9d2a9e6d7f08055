"""Undoing: afterwards the framework is what it was."""

import pytest

from .conftest import Observe

TARGETS = '"train", "Optimizer.step", "Optimizer.clip", "Optimizer.build", "Adam.step", "Adam.clip", "Adam.build", "FusedAdam.__init__"'


def test_import_attach_undo_leaves_every_attribute_identical(observe: Observe) -> None:
    seen = observe(f"""
        import stand_in.consumer
        before = everything()
        attach([hook("training", {TARGETS}), hook("installer", targets=(), handler="hook_bodies:install")], session)
        during = everything()
        session.patch_log.undo()
        after = everything()
        seen = dict(
            changed=sorted(name for name in during if during[name] is not before.get(name)),
            names=sorted(before) == sorted(after),
            different=[name for name in before if after.get(name) is not before[name]],
            journal=len(session.patch_log.journal),
        )
    """)
    owned = [f"stand_in.seams.{target}" for target in TARGETS.replace('"', "").split(", ")]
    assert set(owned) | {"stand_in.train", "stand_in.consumer.run_step", "stand_in.seams.brand_new"} <= set(seen.pop("changed"))
    assert seen == {"names": True, "different": [], "journal": 0}


def test_attach_import_undo_leaves_every_attribute_as_an_import_without_hooks(observe: Observe) -> None:
    """The consumer is imported while hooks are on, so it takes wrapped names; these go back too."""
    kinds = "{name: type(value).__name__ for name, value in everything().items()}"
    plain = observe(f"import stand_in.consumer; seen = {kinds}")
    assert (
        observe(f"""
        attach([hook("training", {TARGETS})], session)
        import stand_in.consumer
        session.patch_log.undo()
        seen = {kinds}
    """)
        == plain
    )


def test_attach_import_undo_deletes_inherited_methods_and_keeps_descriptors(observe: Observe) -> None:
    assert observe(f"""
        attach([hook("training", {TARGETS})], session)
        from stand_in.seams import Adam, FusedAdam, Optimizer, train
        session.patch_log.undo()
        import stand_in.seams
        seen = dict(
            train=type(stand_in.seams.train).__name__,
            owned=[type(vars(Optimizer)[name]).__name__ for name in ("step", "clip", "build")],
            inherited=[name for name in ("step", "clip", "build", "__init__") for cls in (Adam, FusedAdam) if name in vars(cls)],
            results=[FusedAdam(0.5).step(1), Adam().clip(2), FusedAdam.build(3)],
            calls=session.patch_log.calls["training"],
        )
    """) == {
        "train": "function",
        "owned": ["function", "staticmethod", "classmethod"],
        "inherited": [],
        "results": [["FusedAdam", "step", 1, 0.5], ["clip", 2], ["FusedAdam", "build", 3]],
        "calls": 0,
    }


def test_attach_undo_import_attaches_nothing(observe: Observe) -> None:
    assert observe("""
        attach([hook(), hook("installer", targets=(), handler="hook_bodies:install")], session)
        session.patch_log.undo()
        import stand_in.seams
        seen = [type(stand_in.seams.train).__name__, stand_in.seams.evaluate(1), len(session.patch_log.journal)]
    """) == ["function", ["evaluated", 1], 0]


def test_undoing_twice_is_undoing_once_and_attaching_again_wraps_again(observe: Observe) -> None:
    assert observe("""
        import stand_in.seams
        before = stand_in.seams.train
        attach([hook()], session)
        session.patch_log.undo()
        session.patch_log.undo()
        undone = [stand_in.seams.train is before, stand_in.train is before]
        attach([hook()], session)
        stand_in.train(0)
        calls = session.patch_log.calls["training"]
        session.patch_log.undo()
        seen = [*undone, calls, stand_in.seams.train is before]
    """) == [True, True, 1, True]


@pytest.mark.parametrize(
    "named", ["stand_in.seams.train", "Optimizer.step", "Adam.step"], ids=["function", "owned method", "inherited method"]
)
@pytest.mark.slow
def test_what_somebody_replaced_after_us_is_left_alone_and_named_and_the_rest_is_undone(observe: Observe, named: str) -> None:
    place = f"stand_in.seams.{named.removeprefix('stand_in.seams.')}"
    seen = observe(f"""
        import stand_in.seams
        before = everything()
        attach([hook("training", "evaluate", "train", "Optimizer.step", "Adam.step", "Optimizer.build")], session)
        theirs = lambda *anything: "theirs"
        {place} = theirs
        error = attempt(session.patch_log.undo)
        after = everything()
        different = [name for name in after if after[name] is not before.get(name)]
        seen = dict(error=error, different=different, theirs={place} is theirs)
    """)
    kind, message = seen.pop("error")
    assert kind == "AttachError" and f"{named} was replaced" in message
    assert seen == {"different": [place], "theirs": True}


def test_an_inherited_method_that_somebody_deleted_after_us_is_reported(observe: Observe) -> None:
    seen = observe("""
        import stand_in.seams
        attach([hook("training", "Adam.step")], session)
        del stand_in.seams.Adam.step
        seen = attempt(session.patch_log.undo) + ["step" in vars(stand_in.seams.Adam)]
    """)
    assert seen[0] == "AttachError" and "Adam.step" in seen[1] and seen[2] is False
