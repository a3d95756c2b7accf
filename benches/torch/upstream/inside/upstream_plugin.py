"""A plug-in of pytest that lists tests, or runs the listed ones and notes each as it begins and ends.

The notes are lines of JSON, flushed one by one: after a crash they tell which test was running.
"""

import inspect
import json
import os
import pathlib
import re

import pytest

#: What this process is asked to do; programs that a test starts must not see it.
TASK = json.loads(pathlib.Path(os.environ.pop("CACHETTE_UPSTREAM_TASK")).read_text())
#: Tests that others on the same GPU disturb: they ask for most of it, limit it or look at what is free.
ALONE = re.compile(r"largeTensorTest|total_memory|memory_fraction|mem_get_info|memory_used|OutOfMemory")
GPUS_NEEDED = re.compile(r"skip_if_lt_x_gpu\((\d+)")
#: A failure's end is kept.
TEXT = 6000

reports = {}
broken = []


def note(**line):
    """Writes one line."""
    with open(TASK["notes"], "a") as notes:
        notes.write(json.dumps(line) + "\n")


def pytest_configure(config):
    """Imports PyTorch, and with it Cachette, before any test file can initialise CUDA."""
    import torch  # noqa: F401

    if TASK["tests"] is not None and TASK["kind"] != "native":
        import cachette_gpu.torch

        if not cachette_gpu.torch.is_enabled():
            pytest.exit("Cachette is not enabled: this machine shows no GPU", returncode=4)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Keeps the listed tests, in the order of the list."""
    if TASK["tests"] is None:
        return
    found = {item.nodeid: item for item in items}
    items[:] = [found[test] for test in TASK["tests"] if test in found]
    for test in TASK["tests"]:
        if test not in found and not broken:
            note(done=test, outcome="absent", seconds=0, text="")


def pytest_collection_finish(session):
    """Lists the tests, or does what a file for expandable segments does when it runs as a program."""
    if TASK["tests"] is None:
        for item in session.items:
            source = source_of(item)
            gpus = GPUS_NEEDED.search(source)
            note(test=item.nodeid, alone=bool(ALONE.search(source)), gpus=int(gpus[1]) if gpus else 1)
        return
    of_file = [item for item in session.items if item.module.__name__.endswith("_expandable_segments")]
    if of_file:
        import torch

        torch.cuda.memory._set_allocator_settings("expandable_segments:True")
    for item in of_file:
        if hasattr(item.cls, "expandable_segments"):
            item.cls.expandable_segments = True


def pytest_collectreport(report):
    """Notes a file that cannot be imported."""
    if report.failed:
        broken.append(report.nodeid)
        note(broken=report.nodeid, text=report.longreprtext[-TEXT:])


def pytest_runtest_logstart(nodeid):
    reports[nodeid] = []
    note(start=nodeid)


def pytest_runtest_logreport(report):
    reports[report.nodeid].append(report)


def pytest_runtest_logfinish(nodeid):
    """Notes the outcome: a failure in any phase counts."""
    phases = reports.pop(nodeid)
    failed = [phase for phase in phases if phase.outcome == "failed"]
    skipped = [phase for phase in phases if phase.outcome == "skipped"]
    outcome = "failed" if failed else "skipped" if skipped else "passed"
    if skipped and not failed and hasattr(skipped[0], "wasxfail"):
        outcome = "xfailed"
    text = "\n".join(phase.longreprtext for phase in failed or skipped)
    note(done=nodeid, outcome=outcome, seconds=sum(phase.duration for phase in phases), text=text[-TEXT:])


def source_of(item):
    """The source of a test with its decorators, empty where there is none."""
    name = getattr(item, "originalname", None) or item.name
    try:
        return inspect.getsource(getattr(item.cls, name) if item.cls else item.function)
    except (OSError, TypeError, AttributeError):
        return ""
