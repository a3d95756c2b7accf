"""What is raised where Cachette cannot take the place of PyTorch's allocator."""

from __future__ import annotations

from .._errors import Error


class EnableError(Error, RuntimeError):
    """Cachette could not be put in the place of PyTorch's allocator; nothing has changed."""
