"""docs/record.md says what the rules say, and the rules name every file of a run, with the place of its digest."""

import json
from pathlib import Path

import numpy as np

from docs import rules
from docs.record import PAGE, filled
from synthetic import ROWS, SEQUENCE, routed


def test_the_page_has_the_rules() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page


def test_every_file_of_a_run_has_one_rule_and_every_rule_a_file(tmp_path: Path) -> None:
    synthetic = routed("sketches", "routing", "activations")
    synthetic.settings["activations_tensors"] = "*"
    synthetic.activations = {0: {"model.norm": np.ones((ROWS, SEQUENCE, 4), np.float32)}}
    causal = synthetic.write(tmp_path / "run")
    left = {one.path for one in rules.RULES} - {"*.tmp", "causal_attention_mask.npy", "last_words/rank_M.*"}
    for path in causal.rglob("*"):
        if path.is_file():
            name = str(path.relative_to(causal))
            fitting = [one for one in rules.RULES if one.is_of(name)]
            assert len(fitting) == 1, name
            left.discard(fitting[0].path)
            if fitting[0].digest.startswith(rules.SELF):
                assert all("digest" in json.loads(text) for text in path.read_text().splitlines() if text.startswith("{") and len(text) > 1)
    assert left == set()
