"""The error of an allocator that could not be replaced."""

from __future__ import annotations

from .._errors import Error


class EnableError(Error, RuntimeError):
    """PyTorch's allocator could not be replaced by Cachette; nothing has changed."""
