"""Hook handlers, one file a subject. They import torch and megatron freely: each is imported only after its trigger."""
