"""The name tables of the families, for tests that need one."""

from align_hooks.families.deepseek_v3 import DEEPSEEK_V3
from align_hooks.families.family import Family
from align_hooks.families.llama import LLAMA
from align_hooks.families.mixtral import MIXTRAL
from align_hooks.names.table import NameTable


def mindformers(family: Family) -> NameTable:
    return family.mindformers[0].table


MEGATRON_LLAMA, MEGATRON_MIXTRAL, MEGATRON_DEEPSEEK = LLAMA.megatron, MIXTRAL.megatron, DEEPSEEK_V3.megatron
MINDFORMERS_LLAMA = mindformers(LLAMA)
