"""Check the tables of launch/shrink.py, whose directory is the argument, against Megatron's own parser."""

import argparse
import sys

sys.path.insert(0, sys.argv[1])

import shrink
from megatron.training.arguments import add_megatron_arguments

parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
known = {option: action for action in parser._actions for option in action.option_strings}
mindformers = {flag for flag in {**shrink.LEFT_OUT, **shrink.REFUSED} if "_" in flag or flag == "--options"}
named = {flag for flag, _, _ in shrink.FLAGS} | {*shrink.LEFT_OUT, *shrink.REFUSED, *shrink.PATTERNS}
assert not named - known.keys() - mindformers - {"--yaml-cfg"}, named - known.keys()
for flag, default, _ in shrink.FLAGS:
    if flag != "--recompute-num-layers":  # none by default, and then nothing to change
        assert str(known[flag].default) == str(default), (flag, known[flag].default)
print("every flag is Megatron's")
