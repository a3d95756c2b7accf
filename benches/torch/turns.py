"""Runs one program with several allocators at once, a few steps each in turn.

All processes hold their memory side by side, and one at a time has the device. Step for step they do the same work, and
the same step runs with each allocator within a second and on the same few cores, so a machine that changes its pace, or
whose cores differ, does not favour any.
"""

import json
import os
import statistics
import subprocess
import threading

from measured import WARM_UP

#: Cores that all processes share: one for the program, and one for the thread of `backward()`. More would let a process
#: settle on a core that is faster than the other's.
CORES = 2


def run_in_turns(commands, timeout):
    """What each command measured, or why nothing; `commands` has one for each allocator."""
    racers = {name: Racer(command) for name, command in commands.items()}
    # A killed process prints no more, so there is no wait for it.
    alarm = threading.Timer(timeout, lambda: [racer.end() for racer in racers.values()])
    alarm.start()
    try:
        order = list(racers.values())
        for racer in order:
            racer.read_on()
        while any(racer.is_waiting for racer in order):
            for racer in order:
                racer.take_turn()
            # There and back again, so that none always comes after the same other.
            order.reverse()
        return {name: racer.figures() for name, racer in racers.items()}
    finally:
        alarm.cancel()
        for racer in racers.values():
            racer.end()


class Racer:
    """One process, which says `turn` when it waits and prints its figures at its end."""

    def __init__(self, command):
        self.is_waiting, self.found = False, None
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)
        os.sched_setaffinity(self.process.pid, sorted(os.sched_getaffinity(0))[-CORES:])

    def take_turn(self):
        """Lets it run its next steps, if it has any."""
        if self.is_waiting:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
            self.read_on()

    def read_on(self):
        """Reads until it waits again or has ended."""
        self.is_waiting = False
        for line in self.process.stdout:
            if line == "turn\n":
                self.is_waiting = True
                return
            if line.startswith("{"):
                self.found = json.loads(line)

    def figures(self):
        """What it measured."""
        return self.found or {"failure": f"exit {self.process.wait()}; alone it may tell more"}

    def end(self):
        """Leaves no process behind."""
        self.process.kill()
        self.process.wait()


def compare_steps(mine, others):
    """How the steps of some runs compare to the same steps of others.

    Of each step the fastest of all runs counts, for what slows a step down only ever adds to it.
    """
    mine, others = ([min(times) for times in zip(*(run["step_ms"] for run in runs), strict=True)]
                    for runs in (mine, others))
    warm = min(WARM_UP, len(mine) - 1)
    ratios = [a / b for a, b in zip(mine[warm:], others[warm:], strict=True)]
    return {"ratio": sum(mine[warm:]) / sum(others[warm:]), "ratio_median": statistics.median(ratios),
            "ratio_with_first_steps": sum(mine) / sum(others)}
