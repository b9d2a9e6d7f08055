"""``pretrain_gpt.py`` for which every line of its text is a document, so that positions and masks start anew many times a row."""

import runpy
from pathlib import Path
from typing import Any

from megatron.core.tokenizers.utils import build_tokenizer as module

PATH = Path(__file__).parents[3] / "launch" / "pretrain_gpt.py"
LINE_END = 10

if __name__ == "__main__":
    original = module.build_tokenizer

    def build_tokenizer(args: Any) -> Any:
        """Megatron's tokenizer, by which a line's end is a document's."""
        tokenizer = original(args)
        type(tokenizer).eod = property(lambda self: LINE_END)
        return tokenizer

    module.build_tokenizer = build_tokenizer
    runpy.run_path(str(PATH), run_name="__main__")
