"""Quantities that each side computes from several settings, as the frameworks do; UNSET where a setting is missing.

Megatron's are ``validate_args`` and ``core_transformer_config_from_args`` of ``megatron.training``; MindFormers'
``LlamaConfig`` with ``llama_layer``, the newer ``TransformerConfig``, and ``base_trainer``.
"""
