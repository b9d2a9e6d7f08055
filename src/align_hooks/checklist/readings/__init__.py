"""Quantities that no single name says: what each side works out from several, as the frameworks do.

Megatron's are ``validate_args`` and ``core_transformer_config_from_args`` of ``megatron.training``; MindFormers' are ``LlamaConfig`` with
``llama_layer``, the newer ``TransformerConfig``, and ``base_trainer``. Each returns UNSET where something it needs is not said.
"""
