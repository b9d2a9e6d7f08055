"""A tokenizer that decodes odd batches, and the special ids of a configuration."""

from __future__ import annotations

from align_hooks.errors import AlignHooksError, shown
from align_hooks.extras import needing
from align_hooks.process.paths import path_of
from align_hooks.record.batch_statistics import Decode


def tokenizer(path: str) -> Decode:
    """Return a decoder of ids by Hugging Face's ``tokenizer.json``, or a directory that holds one.

    :raises AlignHooksError: there is none, or the library is not installed.
    """
    with needing("tokenizer", "--tokenizer"):
        import tokenizers
    try:
        file = path_of(path)
        file = file / "tokenizer.json" if file.is_dir() else file
        missing = not file.is_file()
    except (OSError, ValueError) as error:
        raise AlignHooksError(f"--tokenizer {shown(path)} {getattr(error, 'strerror', None) or error}") from None
    if missing:
        raise AlignHooksError(f"--tokenizer {shown(path)}: there is no {file}; name a tokenizer.json, or a directory that holds one")
    try:
        opened = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:
        raise AlignHooksError(f"--tokenizer {file} cannot be read: {str(error).splitlines()[0]}; name a tokenizer.json") from None
    return lambda ids: str(opened.decode([token for token in ids if token >= 0], skip_special_tokens=False))
