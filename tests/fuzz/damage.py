"""One change of one digested file of a whole record, which must be noticed."""

from fnmatch import fnmatch
from random import Random

from fuzz.mutations import Scene, rewritten

LEFT_OUT = {
    "causal_attention_mask.npy": "it is compared with what a causal mask is; the bytes of its header may say the same in another way",
    "last_words/*": "it is written as a process dies",
    "manifest/rank_*.claim": "it says who is recording, and is no part of the record",
}
"""Files of a run that no digest covers, by their path in it, and the reason."""


def one_byte(random: Random, scene: Scene) -> list[str]:
    """Change a byte, cut the end, or put another file's content in its place: a file is always another one afterwards."""
    files = {path: path.read_bytes() for path in scene.files()}
    able = [path for path in files if not any(fnmatch(str(path.relative_to(scene.changed[0])), pattern) for pattern in LEFT_OUT)]
    path = random.choice([path for path in able if files[path]])
    data, others = files[path], [candidate for candidate in able if files[candidate] != files[path]]
    alike = [candidate for candidate in others if candidate.name == path.name] or others
    change = random.randrange(4)
    if change == 0 and alike:
        other = random.choice(alike)
        rewritten(path, files[other])
        rewritten(other, data)
        return [f"{path.relative_to(scene.root)} and {other.relative_to(scene.root)} changed places"]
    if change == 1:
        rewritten(path, data[: random.randrange(len(data))])
        return [f"{path.relative_to(scene.root)} cut short"]
    at = random.randrange(len(data))
    changed = bytearray(data)
    changed[at] ^= random.randrange(1, 256)
    rewritten(path, bytes(changed))
    return [f"byte {at} of {path.relative_to(scene.root)}"]
