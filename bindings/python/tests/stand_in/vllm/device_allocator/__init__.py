"""``vllm.device_allocator``."""

import os

if os.environ.get("STAND_IN_VLLM") != "old":

    def get_mem_allocator_instance():
        raise AssertionError("vLLM's own allocator was asked")
