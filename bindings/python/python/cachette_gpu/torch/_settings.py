"""Applies PyTorch's allocator settings to Cachette.

PyTorch reads its variables and the texts of ``_set_allocator_settings`` by itself and does not pass them to its
allocator. So Cachette reads the same texts after it. PyTorch raises its own error for a text that it rejects, and
Cachette then raises :class:`cachette_gpu.ConfigError`. The compiled class follows the texts inside PyTorch, where C++
code changes settings too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from .. import _native
from .._errors import ConfigError

#: The function of ``torch._C`` that changes settings; ``torch.cuda.memory._set_allocator_settings`` calls it.
SETTER = "_accelerator_setAllocatorSettings"

#: The function that returns the last text of settings, from PyTorch 2.12 on.
GETTER = "_accelerator_getAllocatorSettings"

#: PyTorch's variables, in the order in which it looks for them.
VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def check(torch: Any) -> str | None:
    """Makes PyTorch read its variables while its own allocator, which they may name, is active.

    Returns the settings that the program has made since, if any and if PyTorch reports them: 2.11 does not.
    """
    variable = next((name for name in VARIABLES if name in os.environ), None)
    text = os.environ.get(variable or "", "")
    read = getattr(torch._C, SETTER, None)
    tell = getattr(torch._C, GETTER, None)
    try:
        settings: str = tell() if tell else text
        if read and settings:
            read(settings)
    except (ValueError, RuntimeError) as why:
        raise ConfigError(f"{variable}: PyTorch refuses it: {why}; put keys that Cachette alone has into "
                          "CACHETTE_ALLOC_CONF, or into the text for enable()") from why
    return settings if settings != text else None


#: With this begin the errors of the compiled class for texts that Cachette rejects.
OURS = "Cachette: "


def raise_ours(set_settings: Callable[[str], None]) -> Callable[[str], None]:
    """A replacement of ``set_settings`` that raises the errors of the compiled class as Cachette's."""

    def set_allocator_settings(env: str) -> None:
        """Applies the settings in ``env`` to the allocator."""
        try:
            set_settings(env)
        except ValueError as why:
            if not str(why).startswith(OURS):
                raise
            raise ConfigError(str(why)[len(OURS):]) from None

    return set_allocator_settings


def hand_on(set_settings: Callable[[str], None]) -> Callable[[str], None]:
    """A replacement of ``set_settings`` that also changes Cachette's settings."""

    def set_allocator_settings(env: str) -> None:
        """Applies the settings in ``env`` to the allocator."""
        set_settings(env)
        _native.plugin.update_config(env)

    return set_allocator_settings
