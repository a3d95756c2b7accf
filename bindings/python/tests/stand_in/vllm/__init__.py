"""A stand-in for vLLM: the modules of its sleep mode. ``STAND_IN_VLLM=old`` has no backends of others."""
