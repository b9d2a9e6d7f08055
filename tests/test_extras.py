"""The command that installs an extra names packages that are on an index, which this project is not."""

import shlex
from importlib.metadata import PackageNotFoundError, metadata
from unittest import mock

import pytest
from packaging.requirements import Requirement

from align_hooks import extras

EXTRAS = [name for name in metadata("align-hooks").get_all("Provides-Extra") or () if name != "dev"]


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_is_installed_by_the_names_of_its_packages(extra: str) -> None:
    pip, install, *named = shlex.split(extras.installing(extra))
    assert (pip, install, "align-hooks" in extras.installing(extra)) == ("pip", "install", False)
    assert named and all(Requirement(text).marker is None for text in named)


def test_two_extras_are_one_command_and_a_package_that_is_not_installed_names_its_folders_extra() -> None:
    assert shlex.split(extras.installing("pandas", "mpi")) == ["pip", "install", "mpi4py>=3.1", "pandas>=2.1.1"]
    with mock.patch("importlib.metadata.requires", side_effect=PackageNotFoundError):
        assert extras.installing("html") == "pip install '.[html]'"
