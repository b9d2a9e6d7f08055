"""Where an error came about: at the line of the user's own code, wherever below it was raised."""

import json
from pathlib import Path

import pytest

from align_hooks.process.script import place_of


def raised(path: Path, text: str) -> BaseException:
    """What a script ends with."""
    path.write_text(text)
    try:
        exec(compile(text, str(path), "exec"), {"__name__": "__main__"})
    except BaseException as error:
        return error
    raise AssertionError("it did not fail")


def test_it_is_the_line_of_the_script_and_not_of_what_it_called(tmp_path: Path) -> None:
    error = raised(tmp_path / "train.py", "import json\n\ndef build():\n    json.loads('{')\n\nbuild()\n")
    assert isinstance(error, json.JSONDecodeError)
    own = error.with_traceback(error.__traceback__ and error.__traceback__.tb_next)  # without this test's frame, which is a script's too
    assert place_of(own) == f"{tmp_path}/train.py:4 in build"


def test_of_a_script_that_cannot_be_read_it_is_the_line() -> None:
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\ny = = 2\n", "/somewhere/train.py", "exec")
    assert place_of(caught.value.with_traceback(None)) == "/somewhere/train.py:2"


def test_of_an_installed_package_alone_it_is_its_own_line() -> None:
    with pytest.raises(ValueError, match="property name") as caught:
        json.loads("{")
    inner = caught.value.__traceback__ and caught.value.__traceback__.tb_next  # without this test's frame
    assert place_of(caught.value.with_traceback(inner)).startswith(str(Path(json.__file__).parent))


def test_of_an_error_that_was_never_raised_nothing_is_known() -> None:
    assert place_of(ValueError("no frames")) == ""
