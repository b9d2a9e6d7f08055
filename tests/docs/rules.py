"""The rules of a record, which are the rows of ``rules.txt``.

``docs/record.md`` is made from these rules, and a test holds every file of a run against them.
"""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from align_hooks.data_file import sections


@dataclass(frozen=True, slots=True)
class Rule:
    """One kind of file. ``path`` is a pattern in the run, with N for a step and M for a rank; ``digest`` names the place of its digest."""

    path: str
    when: str
    holds: str
    digest: str
    absent: str

    def is_of(self, path: str) -> bool:
        """Whether a path in a run is one of these files."""
        return fnmatchcase(path, self.path.replace("_N", "_[0-9]*").replace("_M", "_[0-9]*"))


SELF = "its own last member"
"""The place of the digest of a file that holds it itself."""
RULES = tuple(
    Rule(path, *(field.strip() for field in " ".join(lines).split("|")))
    for path, lines in sections(Path(__file__).with_suffix(".txt")).items()
)
