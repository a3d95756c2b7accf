"""``vllm.device_allocator.sleep_mode_backend``: backends by name, each imported when it is chosen."""

import importlib
import os


class Factory:
    registered = {}

    @classmethod
    def register_backend(cls, name, module_path, class_name):
        if name in cls.registered:
            raise ValueError(f"Sleep-mode backend '{name}' is already registered.")
        cls.registered[name] = (module_path, class_name)

    @classmethod
    def create_backend(cls, model_config):
        module_path, class_name = cls.registered[model_config.sleep_mode_backend]
        backend = getattr(importlib.import_module(module_path), class_name)
        if not backend.is_supported():
            raise ValueError("not supported on this platform")
        return backend()


if os.environ.get("STAND_IN_VLLM") != "old":
    SleepModeBackendFactory = Factory
