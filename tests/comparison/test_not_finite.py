"""Numbers that are not finite, one in each kind of place where a writer is given any: a documented exit code, said, and never aligned."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import Struct
from msgspec.structs import asdict, replace

from align_hooks.cli import app
from align_hooks.errors import AlignHooksError
from align_hooks.names.points import GRADIENT
from align_hooks.record.format.terms import AUXILIARY, PREDICTION
from align_hooks.record.write.writer import Writer
from chosen import slow
from synthetic import NAMES, ROWS, SEQUENCE, Synthetic, routed

POINT = "model.layers.0.mlp.down_proj"
GIVEN = ("describe", "weights", "optimizer_state", "batch", "activations", "gradients", "sketches", "local_norms", "scalars")
"""The methods by which a writer is given numbers of a run."""
JUDGED_BY_NOTHING = ("seconds", "loss_scale", "clip_grad", "micro_batches", "state", "groups")
"""Numbers that no verdict stands on, finite or not; a hyper-parameter of a group is NaN where it follows a schedule."""
COLUMNS = ("0", "1", "5", "21")
"""Of the numbers of a point: the two counts, the squared sum, the last of the sketch. Least, most and sum are only shown."""
Leaf = tuple[str, ...]


def recorded(kind: str) -> Synthetic:
    """A run of a model with experts whose tensors are ``stored``, or ``sketched``."""
    run = routed("routing", "activations")
    if kind == "sketched":
        run.settings = {name: value for name, value in run.settings.items() if name not in ("gradients", "weights", "optimizer_state")}
        run.settings |= {"sketches": "all", "activations_tensors": "*"}
    for step, row in enumerate(run.rows):
        value = np.random.default_rng(500 + step).standard_normal((ROWS, SEQUENCE, 8)).astype(np.float32)
        run.activations[step] = {POINT: value, POINT + GRADIENT: value / 2}
        row |= {"terms": {AUXILIARY: 0.002, PREDICTION: 1.5}, "micro_batches": [[row["loss"], 1.0, row["loss"]]]}  # type: ignore[dict-item]
        row["state"] = {"samples": float(step)}  # type: ignore[assignment]
    return run


def leaves(value: object, path: Leaf = ()) -> Iterator[Leaf]:
    """The places of floating-point numbers in what a writer is given: of a tensor the first, of the numbers of a point some."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "f":
        yield from ((*path, column) for column in (COLUMNS if value.dtype == np.float64 else ("0",)))
    elif isinstance(value, float) and not (len(path) > 2 and path[-2] == NAMES[0] and 1 < int(path[-1]) < 16):  # the middle of a sketch
        yield path
    elif isinstance(value, Struct):
        yield from leaves(asdict(value), path)
    elif isinstance(value, dict | list | tuple):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if not (isinstance(key, str) and key.startswith(("model.", "lm_head")) and key not in (NAMES[0], POINT, POINT + GRADIENT)):
                yield from leaves(item, (*path, str(key)))


def replaced(value: Any, path: Leaf, number: float) -> Any:
    """The same with another number in one place."""
    if not path:
        return number
    key, *rest = path
    if isinstance(value, np.ndarray):
        value.reshape(-1)[int(key)] = number
        return value
    if isinstance(value, Struct):
        return replace(value, **replaced(asdict(value), path, number))  # type: ignore[type-var]
    if isinstance(value, dict):
        return {name: replaced(item, tuple(rest), number) if str(name) == key else item for name, item in value.items()}
    return type(value)(replaced(item, tuple(rest), number) if str(index) == key else item for index, item in enumerate(value))


def bend(patch: pytest.MonkeyPatch, at: Leaf = (), number: float = math.nan) -> dict[Leaf, None]:
    """Put ``number`` into the place ``at`` of what a writer is given by the first call of a method; returns the places that there are."""
    places: dict[Leaf, None] = {}

    def around(name: str, wrapped: Callable[..., object]) -> Callable[..., object]:
        first = [True]

        def given(writer: Writer, *args: Any, **kwargs: Any) -> object:
            whole = deepcopy({"args": args, "kwargs": kwargs})
            if first.pop():
                places.update(dict.fromkeys((name, *leaf) for leaf in leaves(whole)))
                whole = replaced(whole, at[1:], number) if at[:1] == (name,) else whole
            first.append(False)
            return wrapped(writer, *whole["args"], **whole["kwargs"])

        return given

    for name in GIVEN:
        patch.setattr(Writer, name, around(name, getattr(Writer, name)))
    return places


def written(path: Path, kind: str, at: Leaf, number: float) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        bend(patch, at, number)
        return recorded(kind).write(path)


def ended(*arguments: object) -> int:
    """The exit code of a command, without the process; an error that is not ours is raised."""
    try:
        app(list(map(str, arguments)))
    except SystemExit as end:
        return int(end.code or 0)
    except AlignHooksError as error:
        print(error)
        return error.exit_code
    return 0


@pytest.mark.parametrize("kind", ["stored", "sketched"])
@pytest.mark.parametrize("nth", [10, slow(1)])
@pytest.mark.slow
def test_nothing_that_is_not_finite_is_aligned_or_an_internal_error(
    nth: int, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        places = bend(patch)
        honest = recorded(kind).write(tmp_path / "honest")
    assert ended("compare", honest, honest) == 0
    seen = {place[0] for place in places}
    assert seen == set(GIVEN) - ({"sketches"} if kind == "stored" else {"gradients", "weights", "optimizer_state"})
    wrong = []
    for index, place in list(enumerate(places))[::nth]:
        number = (math.nan, math.inf)[index % 2]
        run = written(tmp_path / f"run_{index}", kind, place, number)
        judged = not any(name in place for name in JUDGED_BY_NOTHING)
        for reference in (honest, run):
            capsys.readouterr()
            code = ended("compare", reference, run)
            printed = capsys.readouterr().out.lower()
            said = any(word in printed for word in ("nan", "inf", "finite"))
            if code not in (0, 1, 3, 4) or (judged and (code == 0 or not said)):
                wrong.append((*place, number, "both" if reference is run else "candidate", code, said))
        assert ended("show", run) in (0, 1, 3)
    assert not wrong, "\n".join(map(str, wrong))
