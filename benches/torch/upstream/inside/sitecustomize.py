"""Enables Cachette in every Python process of a run, as soon as PyTorch is imported.

Python imports this file at its start, since its folder is on `PYTHONPATH`. Processes that a test starts inherit the
variables, so `python -c` programs, spawned workers and ranks are judged on Cachette as well. The configuration comes
from PyTorch's own variables, which some tests set for such a process.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys

#: "native", "plugged" or "class".
KIND = os.environ.get("CACHETTE_UPSTREAM_KIND", "native")
TEST_SUPPORT = "torch.testing._internal."


class Missing:
    """Stands for a name that this PyTorch's test support lacks: false, an empty context, a decorator without effect."""

    def __bool__(self):
        return False

    def __call__(self, *arguments, **named):
        return arguments[0] if len(arguments) == 1 and not named and callable(arguments[0]) else self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return False


class Finder:
    """Adds a step after the import of PyTorch, and after that of each module of its test support."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "torch" and not name.startswith(TEST_SUPPORT):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        # In a package `from package import module` must still find the module.
        if spec is None or (name != "torch" and spec.submodule_search_locations is not None):
            return spec
        execute, then = spec.loader.exec_module, enable if name == "torch" else add_missing

        def exec_module(module):
            execute(module)
            then(module)

        spec.loader.exec_module = exec_module
        return spec


def enable(torch):
    """Enables Cachette; a process without a GPU stays as it is."""
    if KIND != "native" and torch.cuda.device_count() > 0:
        import cachette_gpu.torch

        cachette_gpu.torch.enable(compiled=KIND == "class")


def add_missing(module):
    """Gives a module an answer for the names of a newer version."""
    if hasattr(module, "__getattr__"):
        return

    def answer(name):
        if name.startswith("__"):
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return Missing()

    module.__getattr__ = answer


def run_shadowed():
    """Runs the file of the same name that this one hides, if there is one."""
    here = pathlib.Path(__file__).resolve().parent
    others = [place for place in sys.path if pathlib.Path(place or ".").resolve() != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", others)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(importlib.util.module_from_spec(spec))


sys.meta_path.insert(0, Finder)
run_shadowed()
