"""Hook bodies, one file for each thing that is seen or changed. They import torch and megatron freely: each is imported
only after its trigger.
"""
