"""Which ``run_mindformer.py`` was tried on which installed MindFormers, and what came of it."""

from __future__ import annotations

from dataclasses import dataclass

SCRIPTS = {"1.3.0": "v1.3.0", "1.3.2": "v1.3.2", "1.5.0": "v1.5.0", "1.6.0": "v1.6.0", "1.7.0": "v1.7.0", "1.8.0": "r1.8.0"}
"""Version of a script to the tag or branch that holds it; 1.8.0 has no tag, and 1.9.0 no branch (its script is that of 1.8.0). That of
2.1.0 was not to be had."""

BESIDE_2_1 = (
    *("transformers>=5.3", "datasets<5.1", "pyarrow<24", "mindpet==1.0.4"),
    *("deprecated", "jieba", "rouge-chinese", "sentencepiece", "tensorboardX", "tiktoken"),
)
"""What MindFormers 2.1 imports of what its wheel asks for. From 24 on pyarrow takes no NumPy below 2, for which the wheel asks too."""


@dataclass(frozen=True)
class Installed:
    """A MindFormers to train with: Python's minor version, the wheels, whether the script's checkout shadows that of MindFormers.

    ``cast`` where it was written for a MindSpore whose Cells have that attribute: ``cells_with_cast.py`` gives it back to them. ``newer``
    where its wheel asks for an older MindSpore. ``beside`` is what it imports, where its wheel asks for packages that the index has not.
    """

    python: str
    mindspore: str
    mindformers: str
    checkout: bool = False
    ours: bool = False
    cast: bool = False
    newer: bool = False
    beside: tuple[str, ...] = ()

    @property
    def over(self) -> tuple[str, ...]:
        """What is installed last, whatever the others ask for and it asks for."""
        if self.beside:
            return (f"mindformers=={self.mindformers}",)
        return (f"mindspore=={self.mindspore}",) if self.newer else ()

    @property
    def packages(self) -> tuple[str, ...]:
        """What pip is asked for, nothing where the project's own environment has it; the last five are a training node's for us."""
        if self.ours:
            return ()
        wheels = (f"mindspore=={self.mindspore}", f"mindformers=={self.mindformers}", *self.beside)
        wanted = (wheel for wheel in wheels if wheel not in self.over)
        return (*wanted, "numpy<2", "wrapt", "packaging", "safetensors", "xxhash", "msgspec")


INSTALLED = {
    "1.3.0": Installed("3.11", "2.7.0", "1.3.2", checkout=True, cast=True),  # no wheel; nobody publishes its MindSpore 2.4
    "1.3.2": Installed("3.11", "2.7.0", "1.3.2", cast=True),
    "1.5.0": Installed("3.11", "2.7.0", "1.6.0", checkout=True),  # no wheel, and its MindSpore 2.6 has none either
    "1.6.0": Installed("3.11", "2.7.0", "1.6.0"),
    "1.7.0": Installed("3.11", "2.7.1", "1.7.0"),
    "1.8.0": Installed("3.11", "2.7.2", "1.8.0"),
    "1.9.0": Installed("3.12", "2.9.0", "1.9.0", ours=True),
    "1.6.0@3.10": Installed("3.10", "2.7.0", "1.6.0"),
    "1.7.0@3.10": Installed("3.10", "2.7.1", "1.7.0"),
    "1.8.0@3.10": Installed("3.10", "2.7.2", "1.8.0"),
    "1.8.0@3.12": Installed("3.12", "2.7.2", "1.8.0"),
    "1.9.0@3.10": Installed("3.10", "2.9.0", "1.9.0"),
    "1.9.0@3.11": Installed("3.11", "2.9.0", "1.9.0"),
    "1.9.0@2.10": Installed("3.12", "2.10.0", "1.9.0", newer=True),
    # it asks for MindSpore 2.11 and hyper-parallel, which the index has not
    "2.1.0": Installed("3.12", "2.10.0", "2.1.0", beside=BESIDE_2_1),
}
"""By name of the column: MindFormers with its Python, or its MindSpore, behind the ``@`` where they are not the usual ones. MindSpore 2.7.0
and 2.7.1 have no wheel for Python 3.12."""

NO_MONITOR = "cannot import name 'cloud_monitor' from 'mindformers.tools.cloud_adapter'"
NO_OUTPUT_PATH = "cannot import name 'set_output_path' from 'mindformers.tools'"
NO_FILE_UTILS = "No module named 'mindformers.utils.file_utils'"

TRAIN = (
    *("1.3.0:1.3.0", "1.3.2:1.3.2", "1.5.0:1.5.0", "1.6.0:1.6.0", "1.6.0:1.7.0", "1.7.0:1.6.0", "1.7.0:1.7.0", "1.8.0:1.8.0"),
    *("1.8.0:1.9.0", "1.6.0:1.6.0@3.10", "1.7.0:1.7.0@3.10", "1.8.0:1.8.0@3.10", "1.8.0:1.8.0@3.12", "1.8.0:1.9.0@3.10"),
    *("1.8.0:1.9.0@3.11", "1.8.0:1.9.0@2.10", "1.8.0:2.1.0"),
)
PAIRS: dict[str, str | None] = {
    **dict.fromkeys(TRAIN),
    **dict.fromkeys(("1.5.0:1.6.0", "1.5.0:1.7.0", "1.5.0:1.8.0", "1.5.0:1.9.0"), NO_MONITOR),
    **dict.fromkeys(("1.6.0:1.8.0", "1.6.0:1.9.0", "1.7.0:1.8.0", "1.7.0:1.9.0"), NO_OUTPUT_PATH),
    **dict.fromkeys(("1.8.0:1.6.0", "1.8.0:1.7.0"), NO_FILE_UTILS),
}
"""Script and installed version, and why the script itself does not start there (None where it trains)."""
