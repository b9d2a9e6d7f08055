"""What the last proof said in an environment, kept beside that environment for the doctor."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from contextlib import suppress
from datetime import date
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import asdict

from align_hooks.errors import shown
from align_hooks.messages import rendered
from align_hooks.messages.catalogue import ENGLISH
from align_hooks.proof.proof import Proof
from align_hooks.record.write import atomic

FILE = Path("share", "align_hooks", "proof.json")
"""Below the prefix of the interpreter that trained."""


class KeptProof(Struct, frozen=True):
    """The last proof of an environment."""

    verdict: str
    command: str
    made: str
    """Date, in ISO form."""
    device: str
    versions: Mapping[str, str]

    def described(self, versions: Mapping[str, str]) -> str:
        """Return the proof in words, and what has another of the ``versions`` now, as far as known, so that it no longer counts."""
        other = {name: now for name, now in versions.items() if now and self.versions.get(name, now) != now}
        changed = ", ".join(f"{name} {self.versions[name]} -> {now}" for name, now in other.items())
        again = f"; since then {changed}: run it again" if changed else ""
        return f"align-hooks prove said here on {self.made}: {self.verdict}, on {self.device}, of {shown(self.command)}{again}"


def keep(proof: Proof) -> None:
    """Keep what a proof said beside the environment that trained, if that may be written."""
    for seen in proof.plain.witnessed[:1]:
        said = KeptProof(rendered(proof.verdict, ENGLISH), shlex.join(proof.command), date.today().isoformat(), seen.device, seen.versions)
        with suppress(OSError):
            atomic.write_json(Path(seen.prefix, FILE), asdict(said))


def last(prefix: str) -> KeptProof | None:
    """Return the last proof of an environment; None without one that can be read."""
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(Path(prefix, FILE).read_bytes(), type=KeptProof)
    return None
