"""Keeps the outcomes of every setting in files, and compares them."""

import collections
import json
import threading

from plan import ALLOWED, SETTINGS

GOOD = ("passed", "skipped", "xfailed")


class Results:
    """The outcome of each test in each setting; one JSON file a setting if there is a folder."""

    def __init__(self, folder):
        self.folder, self.lock = folder, threading.Lock()
        self.of = {name: {} for name in SETTINGS}
        if folder is None:
            return
        folder.mkdir(parents=True, exist_ok=True)
        for name in SETTINGS:
            file = folder / f"{name}.json"
            if file.exists():
                self.of[name] = json.loads(file.read_text())

    def add(self, setting, outcomes):
        """Keeps outcomes, those of tests that ran before included, and writes the file anew."""
        with self.lock:
            self.of[setting].update(outcomes)
            if self.folder is not None:
                new = self.folder / f".{setting}.new"
                new.write_text(json.dumps(self.of[setting], indent=0, sort_keys=True))
                new.replace(self.folder / f"{setting}.json")

    def name(self, setting, test):
        """The outcome of a test, or nothing where it did not run."""
        return self.of[setting].get(test, {}).get("outcome", "")

    def failed(self, setting):
        """The tests that failed, crashed or did not end."""
        return [test for test in self.of[setting] if self.name(setting, test) not in GOOD]

    def unequal(self, setting):
        """The tests whose outcome is not the native one; those that did not run natively count if they failed."""
        found = []
        for test in self.of[setting]:
            mine, native = self.name(setting, test), self.name(SETTINGS[setting].native, test)
            if mine != native and (native or mine not in GOOD):
                found.append(test)
        return found

    def differences(self, setting):
        """The unequal tests that count: they pass natively, or did not run, and may not differ."""
        return [test for test in self.unequal(setting)
                if self.name(SETTINGS[setting].native, test) in ("passed", "") and name_of(test) not in ALLOWED]

    def markdown(self):
        """Counts, then a row for every test that differs."""
        ran = [name for name in SETTINGS if self.of[name]]
        compared = [name for name in ran if SETTINGS[name].kind != "native"]
        kinds = sorted({self.name(name, test) for name in ran for test in self.of[name]}, key=lambda kind: (
            GOOD.index(kind) if kind in GOOD else len(GOOD), kind))
        rows = [["setting", *kinds, "pass natively, not here"]]
        for name in ran:
            counts = collections.Counter(self.name(name, test) for test in self.of[name])
            rows.append([name, *(str(counts[kind]) for kind in kinds),
                         str(len(self.differences(name))) if name in compared else ""])
        unequal = dict.fromkeys(test for name in compared for test in self.unequal(name))
        differing = [["test", *ran]]
        differing += [[f"`{test}`", *(self.cell(name, test) for name in ran)] for test in sorted(unequal)]
        none = "No test differs." if ran else "No test ran."
        return table(rows) + "\n" + (table(differing) if unequal else none + "\n")

    def cell(self, setting, test):
        """An outcome, and whether the test had the device alone after it had failed beside others."""
        found = self.of[setting].get(test)
        if found is None:
            return ""
        return found["outcome"] + (", at first " + found["first"] if "first" in found else "")

    def texts(self):
        """What each test that counts as a difference has said."""
        for setting in SETTINGS:
            for test in self.differences(setting) if SETTINGS[setting].kind != "native" else ():
                yield setting, test, self.of[setting][test]["text"]


def name_of(test):
    """The function of a test's id."""
    return test.rpartition("::")[2].partition("[")[0]


def table(rows):
    """Rows as Markdown; the first is the head."""
    head, *rest = ("| " + " | ".join(row) + " |\n" for row in rows)
    return head + "|" + "---|" * len(rows[0]) + "\n" + "".join(rest)
