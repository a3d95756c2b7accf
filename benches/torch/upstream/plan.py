"""What is run: the settings, PyTorch's test files, and how their tests are divided among processes."""

import re
from typing import NamedTuple


class Setting(NamedTuple):
    """An allocator and its mode."""

    #: "native", "plugged" or "class".
    kind: str
    expandable: bool = False

    @property
    def native(self):
        """The name of the native setting that this one is held against."""
        return "native-expandable" if self.expandable else "native"


SETTINGS = {
    "native": Setting("native"),
    "native-expandable": Setting("native", expandable=True),
    "plugged": Setting("plugged"),
    "class": Setting("class"),
    "class-expandable": Setting("class", expandable=True),
}


class File(NamedTuple):
    """What of a test file is run."""

    #: An expression for pytest's `-k`.
    keyword: str = ""
    #: A pattern; tests whose id it matches are left out.
    leave_out: str = "^$"
    #: The file turns expandable segments on, so the settings with them would only repeat it.
    turns_expandable: bool = False
    #: Every test needs a new process.
    apart: bool = False


#: The files of PyTorch's `test` folder that use its allocator, as far as one GPU is enough.
FILES = {
    # Optimizers, autocast and GPUDirect Storage do not depend on the allocator, and are most of the file's time.
    "test_cuda.py": File(leave_out="(?i)optim|autocast|gds"),
    "test_cuda_expandable_segments.py": File(leave_out="(?i)optim|autocast|gds", turns_expandable=True),
    "inductor/test_cudagraph_trees.py": File(),
    "test_multiprocessing.py": File(keyword="cuda"),
    "test_cuda_trace.py": File(apart=True),
    "test_dataloader.py": File(keyword="pin"),
    "distributed/test_c10d_nccl.py": File(),
    "distributed/test_c10d_ops_nccl.py": File(),
    "distributed/test_nccl.py": File(),
    "distributed/test_c10d_gloo.py": File(keyword="cuda"),
    "distributed/test_c10d_pypg.py": File(),
    "distributed/test_data_parallel.py": File(),
}

#: Tests that may differ: one asks for the name of the allocator, one for pinned blocks in powers of two.
ALLOWED = ("test_allocator_backend", "test_host_memory_stats")

#: Tests that one process runs. The division is the same in every setting, for a test can depend on those before it.
SHARD = 40


class Shard(NamedTuple):
    """Tests of one file that one process runs, one after another, in one setting."""

    setting: str
    file: str
    tests: tuple


def settings_of(file, chosen):
    """Those of the chosen settings that a file is run in."""
    if FILES.get(file, File()).turns_expandable:
        return [name for name in chosen if not SETTINGS[name].expandable]
    return list(chosen)


def selected(file, listed, deselect, gpus):
    """The ids of the tests to run, of those that a listing of the file found."""
    patterns = [FILES.get(file, File()).leave_out, *deselect]
    return [line["test"] for line in listed
            if line["gpus"] <= gpus and not any(re.search(pattern, line["test"]) for pattern in patterns)]


def shards(setting, file, tests):
    """The tests of a file, divided among processes."""
    size = 1 if FILES.get(file, File()).apart else SHARD
    return [Shard(setting, file, tuple(tests[at:at + size])) for at in range(0, len(tests), size)]
