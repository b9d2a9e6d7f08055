"""launch/pretrain_gpt.py with a data loader of its own, whose worker is started as START says; a pool reads its rows first."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import torch

if os.environ.get("IMPORT_FORM"):
    import align_hooks.job.entry

    align_hooks.job.entry.attach_on_import("torch")
sys.path.insert(0, str(Path(__file__).parents[3] / "launch"))

import pretrain_gpt as script


def row(index):
    return torch.randint(0, 255, (129,), generator=torch.Generator().manual_seed(index)).tolist()


class Rows(torch.utils.data.Dataset):
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        tokens = torch.tensor(self.rows[index])
        mask = ~torch.ones(1, 128, 128, dtype=torch.bool).tril()
        kept = {"tokens": tokens[:-1], "labels": tokens[1:], "loss_mask": torch.ones(128)}
        return kept | {"position_ids": torch.arange(128), "attention_mask": mask}


def providers(samples, vp_stage=None):
    context = get_context(os.environ["START"])
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        rows = list(pool.map(row, range(12)))
    with context.Pool(1) as pool:
        assert pool.map(row, range(12)) == rows
    return iter(torch.utils.data.DataLoader(Rows(rows), batch_size=2, num_workers=1, multiprocessing_context=context)), None, None


if __name__ == "__main__":
    providers.is_distributed = True
    arguments = script.parse_and_validate_args()
    container = script.pretrain_cfg_container_from_args(arguments, script.gpt_config_from_args(arguments))
    script.pretrain(container, providers, script.ModelType.encoder_or_decoder, script.forward_step)
