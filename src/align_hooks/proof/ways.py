"""The ways in which a proof trains the same job: without hooks, then with more and more recorded."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field

from align_hooks.quantities.registry import KINDS, SWITCHES, TENSORS
from align_hooks.settings import PREFIX

ALL = tuple(switch.name for switch in SWITCHES)
LARGE = tuple(dict.fromkeys(kind.variable for kind in TENSORS))
"""Variables of the quantities that are as large as the model."""
OWN = ("run", "run_exists", "on_error", *ALL, *(option.name for switch in SWITCHES for option in switch.options))
"""Variables that a proof sets itself; all others are the job's, and stay."""
SEEDED = {f"{PREFIX}DETERMINISTIC": "1"}
SEEDING = {**SEEDED, f"{PREFIX}SEED": "1234"}
"""Variables by which a job may repeat itself to the bit, where its weights start equal without, and where they do not."""


class Way(Struct, frozen=True):
    """One training of the job."""

    name: str
    recorded: tuple[str, ...] = ()
    """Names of the variables of what is recorded; without any nothing is attached but the witness."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Further variables."""

    @property
    def switches(self) -> str:
        """Return the further variables as a shell takes them."""
        return " ".join(f"{name}={value}" for name, value in self.fixed.items())

    @property
    def title(self) -> str:
        """Return the name, with the further variables."""
        return f"{self.name} {self.switches}".rstrip()

    @property
    def copies(self) -> int:
        """How many times the size of the model a recorded step takes, in fp32."""
        return sum(kind.copies for kind in KINDS if kind.variable in self.recorded)

    def variables(self, run: str, steps: str) -> dict[str, str]:
        """Return the variables of the way, which records into ``run``, and at ``steps`` what is as large as the model."""
        asked = {PREFIX + name.upper(): steps if name in LARGE else "all" for name in self.recorded}
        return {**asked, **({PREFIX + "RUN": run} if asked else {}), **self.fixed}


OFF, AGAIN, NORMS, EVERYTHING = Way("off"), Way("off again"), Way("norms", ("local_norms",)), Way("everything", ALL)
WAYS = (OFF, NORMS, AGAIN, Way("gradients", ("gradients",)), Way("activations", ("activations",)), EVERYTHING)


def repeatable(fixed: Mapping[str, str]) -> tuple[Way, ...]:
    """Return the ways that show whether the job repeats itself to the bit with ``fixed`` variables, and recording does not change that."""
    return tuple(Way(way.name, way.recorded, fixed) for way in (OFF, AGAIN, EVERYTHING))


def own(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment without the variables that a proof sets itself."""
    names = {PREFIX + name.upper() for name in OWN}
    return {name: value for name, value in environment.items() if name not in names}
