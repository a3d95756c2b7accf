"""A plug-in of pytest: with ``--cachette-sanitize`` each test fails in which memory is reused too early."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the option."""
    parser.getgroup("cachette").addoption(
        "--cachette-sanitize", action="store_true",
        help="let PyTorch's memory come from Cachette, and fail tests that reuse it too early")


def pytest_configure(config: pytest.Config) -> None:
    """Enables Cachette before the first test uses a GPU."""
    if config.getoption("--cachette-sanitize"):
        import cachette_gpu.torch

        if not cachette_gpu.torch.is_enabled():
            cachette_gpu.torch.enable()


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[Any]:
    """Sanitizes one test."""
    if not pyfuncitem.config.getoption("--cachette-sanitize"):
        return (yield)
    import cachette_gpu.torch

    with cachette_gpu.torch.sanitize() as sanitizer:
        result = yield
    if sanitizer.count:
        pytest.fail(sanitizer.text(), pytrace=False)
    return result
