"""The error of an allocator that could not be replaced."""

from __future__ import annotations

from .._errors import EnableError

__all__ = ["EnableError"]
