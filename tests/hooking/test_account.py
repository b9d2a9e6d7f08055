"""The account at the end: what was asked for and never happened, and the exit code that says so."""

import pytest

from .conftest import Observe

RUN = """
    attach([hook(), hook("elsewhere", trigger="stand_in.consumer", targets=("epoch",))], session)
    import stand_in.seams
    {calls}
    problems = finish(session, failure(session, {code}, None))
    seen = dict(problems=problems, code=exit_code({code}, problems))
"""
NEVER_CALLED = "hook 'training': attached to stand_in.seams, never called"
NEVER_IMPORTED = "hook 'elsewhere': stand_in.consumer was never imported"


ACCOUNTS = {
    "no hook fired": ("pass", 0, [NEVER_IMPORTED, NEVER_CALLED], 3),
    "one hook fired": ("stand_in.train(0)", 0, [NEVER_IMPORTED], 3),
    "all hooks fired": ("import stand_in.consumer; stand_in.consumer.epoch()", 0, [], 0),
    "the script failed": ("pass", 42, [], 42),
}


@pytest.mark.parametrize("case", ACCOUNTS)
def test_hooks_that_never_fired_are_listed_and_turn_0_into_3(observe: Observe, case: str) -> None:
    calls, code, problems, ends = ACCOUNTS[case]
    assert observe(RUN.format(calls=calls, code=code)) == {"problems": problems, "code": ends}


def test_only_0_is_ever_turned_into_3(observe: Observe) -> None:
    assert observe("seen = [exit_code(code, ['a problem']) for code in (0, 1, 2, 42, 130)]") == [3, 1, 2, 42, 130]


def test_a_hook_that_need_not_fire_is_not_listed(observe: Observe) -> None:
    assert observe("""
        attach([hook(must_fire=False), hook("elsewhere", trigger="stand_in.consumer", must_fire=False)], session)
        import stand_in.seams
        seen = [session.patch_log.unfired(), session.patch_log.facts()]
    """) == [[], {"elsewhere": {"state": "pending", "calls": 0}, "training": {"state": "attached", "calls": 0}}]


def test_hooks_on_one_module_attach_together_and_calls_are_counted_for_each_over_all_its_targets(observe: Observe) -> None:
    seen = observe("""
        attach([hook("training", "train", "Optimizer.step"), hook("evaluation", "evaluate"), hook("idle", "Optimizer.clip")], session)
        from stand_in.seams import Adam, evaluate, train
        for step in range(5):
            train(step), Adam().step(step)
        evaluate(0)
        attempt(lambda: train(-1))
        seen = session.patch_log.facts()
    """)
    assert seen == {name: {"state": "attached", "calls": calls} for name, calls in (("training", 11), ("evaluation", 1), ("idle", 0))}
