"""Runs PyTorch's own tests natively and on Cachette, and prints where the outcomes differ.

    python3 benches/torch/upstream --prepare PYTORCH.git upstream-tests        # once: the files and what they import
    python3 benches/torch/upstream upstream-tests/test --results results --jobs 8

A test that crashes or hangs is noted, and the run goes on after it. Tests that ask for most of the GPU run alone at the
end, and so does a second time what failed beside others; that outcome counts, except after a crash. The exit status is
1 if a test passes natively and not on Cachette, and 2 if some tests could not be run in time.
"""

import argparse
import concurrent.futures
import pathlib
import sys
import time

from child import Limits, list_tests, run_shard
from plan import FILES, SETTINGS, Shard, selected, settings_of, shards
from prepare import prepare
from results import GOOD, Results


def arguments():
    """The command line."""
    parser = argparse.ArgumentParser(prog="benches/torch/upstream", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tests", type=pathlib.Path, nargs="?", help="the folder with PyTorch's test files")
    parser.add_argument("--prepare", nargs=2, metavar=("GIT", "DEST"), type=pathlib.Path,
                        help="take the test files out of a git directory of PyTorch, and end")
    parser.add_argument("--only", type=names(SETTINGS), default=list(SETTINGS), metavar="SETTING,...",
                        help=f"the settings that run, of {', '.join(SETTINGS)}")
    parser.add_argument("--files", type=lambda text: text.split(","), default=list(FILES), metavar="FILE,...")
    parser.add_argument("-k", dest="keyword", default="", metavar="EXPRESSION", help="as with pytest")
    parser.add_argument("--deselect", action="append", default=[], metavar="PATTERN",
                        help="leave out the tests whose id matches; may be repeated")
    parser.add_argument("--gpus", type=int, default=1, help="leave out tests that need more (default: %(default)s)")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS", help="for everything")
    parser.add_argument("--test-limit", type=float, default=90, metavar="SECONDS", help="for one test")
    parser.add_argument("--jobs", type=int, default=4, help="processes side by side (default: %(default)s)")
    parser.add_argument("--results", type=pathlib.Path, metavar="DIR",
                        help="keep outcomes there, one JSON file a setting; those of settings that do not run are used")
    parser.add_argument("--what-failed", action="store_true", help="run only what failed by the kept outcomes")
    parser.add_argument("--natively-what-failed", action="store_true",
                        help="run natively, at the end, only what did not pass on Cachette and has no kept outcome")
    options = parser.parse_args()
    if options.prepare is None and (options.tests is None or not options.tests.is_dir()):
        parser.error("name the folder with PyTorch's test files; --prepare makes it")
    return options


def names(known):
    """A reader of names with commas between them."""
    def read(text):
        for name in text.split(","):
            if name not in known:
                raise argparse.ArgumentTypeError(f"there is no {name!r}; choose among {', '.join(known)}")
        return text.split(",")
    return read


class Run:
    """One run of the tests: what is known of them, and their outcomes."""

    def __init__(self, options):
        self.options, self.began = options, time.monotonic()
        self.folder = options.tests.resolve()
        self.limits = Limits(options.test_limit, self.began + options.limit)
        self.results = Results(options.results)
        #: The tests of each file, and those of all files that run alone.
        self.tests, self.alone, self.broken = {}, set(), {}
        #: What the time did not suffice for: files whose tests are not known, and tests.
        self.not_read, self.not_run = [], []

    def say(self, text):
        print(f"[{time.monotonic() - self.began:5.0f} s] {text}", file=sys.stderr, flush=True)

    def list(self):
        """Finds the tests of every file."""
        def one(file):
            return list_tests(self.folder, file, self.options.keyword, self.limits)

        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            for file, (found, broken) in zip(self.options.files, pool.map(one, self.options.files), strict=True):
                if found is None:
                    self.not_read.append(file)
                    continue
                self.tests[file] = selected(file, found, self.options.deselect, self.options.gpus)
                self.alone |= {line["test"] for line in found if line["alone"]}
                self.say(f"{file}: {len(self.tests[file])} of {len(found)} tests")
                if broken:
                    self.broken[file] = broken
                    self.say(f"{file} cannot be imported:\n{broken}")

    def run(self, setting_tests):
        """Runs tests in settings: side by side what can be, alone what cannot, and what failed in a new process."""
        beside, alone = [], []
        for (setting, file), tests in setting_tests.items():
            beside += shards(setting, file, [test for test in tests if test not in self.alone])
            alone += shards(setting, file, [test for test in tests if test in self.alone])
        self.run_all(self.run_one, beside, alone)
        # What did not end takes longest to try again, and so comes last.
        for kind in ("failed", "timed out"):
            # Each in its own process: a failed test keeps its tensors, which would disturb those after it.
            again = [Shard(setting, file, (test,)) for (setting, file), tests in setting_tests.items()
                     for test in tests if self.results.name(setting, test) == kind]
            alone = [shard for shard in again if shard.tests[0] in self.alone]
            self.run_all(lambda shard, kind=kind: self.run_again(kind, shard),
                         [shard for shard in again if shard not in alone], alone)

    def run_all(self, run, beside, alone):
        """Runs shards side by side, and then those that must be alone."""
        with concurrent.futures.ThreadPoolExecutor(self.options.jobs) as pool:
            list(pool.map(run, beside))
        for shard in alone:
            run(shard)

    def run_one(self, shard):
        """Runs a shard and keeps its outcomes."""
        outcomes = run_shard(self.folder, shard, self.limits)
        self.results.add(shard.setting, outcomes)
        self.not_run += [(shard.setting, test) for test in shard.tests if test not in outcomes]
        bad = [test for test, found in outcomes.items() if found["outcome"] not in GOOD]
        self.say(f"{shard.setting}, {shard.file}: {len(outcomes)} of {len(shard.tests)}" + "".join(
            f"\n    {outcomes[test]['outcome']}: {test}" for test in bad))

    def run_again(self, kind, shard):
        """Runs a test in a new process that had such an outcome among others; the new one replaces it."""
        outcomes = run_shard(self.folder, shard, self.limits)
        for found in outcomes.values():
            if found["outcome"] != kind:
                found["first"] = kind
        self.results.add(shard.setting, outcomes)
        self.say("".join(f"{shard.setting}, again: {found['outcome']}: {test}" for test, found in outcomes.items()))

    def plan(self):
        """The tests of the chosen settings."""
        chosen = self.options.only
        if self.options.natively_what_failed:
            chosen = [name for name in chosen if SETTINGS[name].kind != "native"]
        planned = {}
        for file, tests in self.tests.items():
            for name in settings_of(file, chosen):
                failed = set(self.results.failed(name)) if self.options.what_failed else set(tests)
                planned[name, file] = [test for test in tests if test in failed]
        return planned

    def plan_natively(self):
        """The native runs of tests that did not pass on Cachette."""
        planned = {}
        for file, tests in self.tests.items():
            for name in settings_of(file, [name for name in SETTINGS if SETTINGS[name].kind != "native"]):
                native = SETTINGS[name].native
                wanted = {test for test in tests if self.results.name(name, test) not in ("passed", "")
                          and not self.results.name(native, test)}
                earlier = set(planned.get((native, file), ()))
                planned[native, file] = [test for test in tests if test in wanted | earlier]
        return planned

    def report(self):
        """Prints the comparison; the exit status."""
        for setting, test, text in self.results.texts():
            print(f"\n== {setting}: {test}\n{text[-2500:]}")
        print("\n" + self.results.markdown())
        missing = self.not_run or self.not_read or self.broken
        if missing:
            print(f"{len(self.not_run)} tests and {len(self.not_read)} files were not run for want of time, and "
                  f"{len(self.broken)} files could not be imported.")
        compared = [name for name in SETTINGS if SETTINGS[name].kind != "native"]
        if any(self.results.differences(name) for name in compared):
            return 1
        return 2 if missing else 0


def main():
    options = arguments()
    if options.prepare is not None:
        written = prepare(*options.prepare, options.files)
        print(f"{len(written)} files in {options.prepare[1]}")
        return
    run = Run(options)
    run.list()
    run.run(run.plan())
    if options.natively_what_failed:
        run.run(run.plan_natively())
    sys.exit(run.report())


if __name__ == "__main__":
    main()
