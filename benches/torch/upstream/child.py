"""Runs tests in child processes that may crash or hang, and goes on after the test that did."""

import contextlib
import json
import os
import pathlib
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from plan import FILES, SETTINGS, File

INSIDE = pathlib.Path(__file__).resolve().parent / "inside"
#: Seconds a child may take to import PyTorch and the test file, and to end after its last test.
START, END = 240, 60
#: Seconds between two looks at a child.
PAUSE = 0.1
#: Frames of a crash that are the same for all tests.
FRAMES = re.compile(r'File ".*(/_pytest/|/pluggy/|/pytest/__main__|unittest/case\.py|<frozen runpy>)')
#: Variables that would change what the tests see.
FOREIGN = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "CACHETTE_ALLOC_CONF")


class Limits(NamedTuple):
    """When a child is stopped."""

    #: Seconds that one test may take.
    test: float
    #: The moment when everything ends, by `time.monotonic`.
    deadline: float


def list_tests(tests, file, keyword, limits):
    """One line for each test of a file, or none if the time is over, and why the file cannot be imported if so."""
    keywords = [f"({word})" for word in (FILES.get(file, File()).keyword, keyword) if word]
    with Child(tests, "native", file, None, ["-k", " and ".join(keywords)] if keywords else []) as child:
        child.wait(limits)
        if child.stopped == "not run":
            return None, ""
        found = [line for line in child.lines if "test" in line]
        broken = [line["text"] for line in child.lines if "broken" in line]
        if not found and not broken and child.process.returncode not in (0, 5):
            broken = [child.log()]
        return found, "\n".join(broken)


def run_shard(tests, shard, limits):
    """The outcome of each test of a shard by its id; a child that died is followed by one with what is left."""
    outcomes, left = {}, list(shard.tests)
    while left and time.monotonic() < limits.deadline:
        with Child(tests, shard.setting, shard.file, left) as child:
            child.wait(limits)
            outcomes.update(child.outcomes())
        rest = [test for test in left if test not in outcomes]
        if rest == left and time.monotonic() < limits.deadline:
            outcomes.update({test: outcome("error", child.text) for test in left})
            break
        left = rest
    return outcomes


def outcome(name, text="", seconds=0.0):
    """What is kept of a test."""
    return {"outcome": name, "seconds": round(seconds, 2), "text": text}


class Child:
    """One pytest process, its notes and its log."""

    def __init__(self, folder, setting, file, tests, options=()):
        self.file, self.tests, self.lines, self.stopped, self.text = file, tests, [], "", ""
        self.place = tempfile.TemporaryDirectory(prefix="upstream-")
        place = pathlib.Path(self.place.name)
        self.notes, self.log_file = place / "notes", place / "log"
        self.notes.touch()
        kind = SETTINGS[setting].kind
        (place / "task").write_text(json.dumps({"tests": tests, "notes": str(self.notes), "kind": kind}))
        (place / "work").mkdir()
        command = [sys.executable, "-m", "pytest", "-q", "--tb=short", "-p", "upstream_plugin",
                   "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), *options, str(folder / file)]
        if tests is None:
            command.append("--collect-only")
        with self.log_file.open("w") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                            cwd=place / "work", env=environment(setting, place / "task"),
                                            start_new_session=True, preexec_fn=no_core)
        self.reader = self.notes.open()
        self.since = time.monotonic()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # What the tests have started and left behind is in the child's group.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.reader.close()
        self.place.cleanup()

    def wait(self, limits):
        """Reads notes until the child has ended, or stops it."""
        while self.process.poll() is None:
            time.sleep(PAUSE)
            self.read()
            allowed = limits.test if self.running else START if not self.done else END
            if time.monotonic() > limits.deadline:
                return self.stop("not run")
            if time.monotonic() - self.since > allowed:
                return self.stop("timed out")
        self.read()
        return None

    def read(self):
        """Takes what was noted since the last look."""
        for line in self.reader:
            # The end of a process can cut its last line.
            with contextlib.suppress(json.JSONDecodeError):
                self.lines.append(json.loads(line))
            self.since = time.monotonic()

    def stop(self, why):
        """Ends the child; Python's fault handler writes first where every thread is."""
        self.stopped = why
        self.process.send_signal(signal.SIGABRT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(3)
        self.read()

    @property
    def done(self):
        """The notes of tests that have ended."""
        return [line for line in self.lines if "done" in line]

    @property
    def running(self):
        """The test that has begun and not ended."""
        begun = [line["start"] for line in self.lines if "start" in line]
        ended = {line["done"] for line in self.done}
        return begun[-1] if begun and begun[-1] not in ended else None

    def outcomes(self):
        """What the notes and the end of the process tell."""
        found = {line["done"]: outcome(line["outcome"], line["text"], line["seconds"]) for line in self.done}
        status = self.process.poll()
        self.text = f"{ending(status)}\n{self.log()}"
        if self.running is not None:
            if self.stopped != "not run":
                found[self.running] = outcome(self.stopped or "crashed", self.text, time.monotonic() - self.since)
        elif found and not self.stopped and status not in (0, 1):
            # The tests passed, and then the process failed to end.
            found[f"{self.file}::end of the process"] = outcome("crashed", self.text)
        elif found and self.stopped == "timed out":
            found[f"{self.file}::end of the process"] = outcome("timed out", self.text)
        return found

    def log(self):
        """The end of what the child wrote; after a crash it begins with the reason, which the fault handler follows."""
        text = self.log_file.read_text(errors="replace")
        text = "".join(line for line in text.splitlines(keepends=True) if not FRAMES.search(line))
        crash = text.rfind("Fatal Python error")
        return text[-4000:] if crash < 0 else text[max(0, crash - 1000):crash + 3000]


def ending(status):
    """How a process ended, in words."""
    if status is None:
        return "stopped"
    if status < 0:
        return f"signal {signal.Signals(-status).name}"
    return f"exit status {status}"


def environment(setting, task):
    """The variables of a child; they are the same on both sides but for the allocator."""
    variables = {name: value for name, value in os.environ.items() if name not in FOREIGN}
    path = [str(INSIDE), *filter(None, [variables.get("PYTHONPATH")])]
    variables.update(PYTHONPATH=os.pathsep.join(path), PYTHONUNBUFFERED="1", CACHETTE_UPSTREAM_TASK=str(task),
                     CACHETTE_UPSTREAM_KIND=SETTINGS[setting].kind, TORCHINDUCTOR_COMPILE_THREADS="1",
                     PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    # Both defaults are named, because PyTorch's is the opposite of Cachette's.
    variables["PYTORCH_CUDA_ALLOC_CONF"] = f"expandable_segments:{SETTINGS[setting].expandable}"
    return variables


def no_core():
    """Lets a crash leave no file behind."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
