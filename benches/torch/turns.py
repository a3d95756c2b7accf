"""Two PyTorch programs whose peaks are 0.7 of the card each, side by side and one after the other, as JSON.

    turns.py --memory native|cachette [--meet]

Each program holds 0.2 of the card all the time, and in turns 0.5 more; a file lock keeps the peaks apart, so the live
memory of both is never above 0.95. With `--meet` the lock is held only while a peak rises: the later program rises while
the other one is at its peak, and its requests wait for that to pass (`reclaim_wait`). Without any lock both could hold a
part of their peak and wait for each other. No program empties its cache. The work of a round is the same number of matrix products.
"""

import argparse
import fcntl
import json
import os
import random
import subprocess
import sys
import tempfile
import time

LOW, MORE = 0.2, 0.5
ROUNDS = 4
PRODUCTS = 120


def blocks(torch, chance, total):
    """Tensors of random sizes with so many bytes in all, each filled with its number."""
    held = []
    while total > 0:
        size = min(total, chance.randrange(16, 1024) << 20)
        held.append(torch.full((size,), len(held) % 251, dtype=torch.uint8, device="cuda"))
        total -= size
    return held


def check(held):
    for number, tensor in enumerate(held):
        wrong = int((tensor != number % 251).sum()) if tensor.numel() < 1 << 24 else int(
            (tensor[:: 4096] != number % 251).sum() + (tensor[-4096:] != number % 251).sum())
        assert wrong == 0, f"{wrong} bytes are wrong"


def work(torch, matrix):
    for _ in range(PRODUCTS):
        matrix = torch.nn.functional.normalize(matrix @ matrix)
    torch.cuda.synchronize()


def program(arguments):
    import torch
    if arguments.memory == "cachette":
        import cachette_gpu.torch
        cachette_gpu.torch.enable("expandable_segments:True" + (",reclaim_wait:120" if arguments.meet else ""))
    torch.cuda.init()
    total = torch.cuda.mem_get_info()[1]
    matrix = torch.randn(8192, 8192, device="cuda")
    chance = random.Random(arguments.seed)
    work(torch, matrix)
    print("ready", flush=True)
    sys.stdin.readline()
    begun = time.monotonic()
    low = blocks(torch, chance, int(LOW * total))
    for number in range(ROUNDS):
        with open(arguments.lock, "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            more = blocks(torch, chance, int(MORE * total))
            if arguments.meet:
                fcntl.flock(lock, fcntl.LOCK_UN)
            work(torch, matrix)
            check(more)
            del more
            torch.cuda.synchronize()
        work(torch, matrix)
    check(low)
    found = {"seconds": time.monotonic() - begun}
    if arguments.memory == "cachette":
        stats = cachette_gpu.torch.memory_stats() if hasattr(cachette_gpu.torch, "memory_stats") else {}
        found.update({key: value for key, value in stats.items() if "reclaim" in key or "given" in key})
    print(json.dumps(found), flush=True)


def start(arguments, seed, lock):
    command = [sys.executable, __file__, "--memory", arguments.memory, "--seed", str(seed), "--lock", lock]
    child = subprocess.Popen(command + ["--meet"] * arguments.meet, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True)
    return child


def run(children):
    """Starts the work of programs that are ready, and waits for them: seconds, and what each says at its end."""
    for child in children:
        assert child.stdout.readline().strip() == "ready", child.stderr.read()
    begun = time.monotonic()
    for child in children:
        child.stdin.write("go\n")
        child.stdin.flush()
    said = []
    for child in children:
        out, err = child.communicate()
        said.append(json.loads(out) if child.returncode == 0 else {"failed": err.strip()[-2500:]})
    return time.monotonic() - begun, said


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--memory", choices=["native", "cachette"], required=True)
    parser.add_argument("--meet", action="store_true")
    parser.add_argument("--seed", type=int)
    parser.add_argument("--lock")
    arguments = parser.parse_args()
    if arguments.seed is not None:
        return program(arguments)
    with tempfile.TemporaryDirectory() as folder:
        lock = os.path.join(folder, "lock")
        one_after_the_other = [run([start(arguments, seed, lock)]) for seed in (1, 2)]
        together, said = run([start(arguments, seed, lock) for seed in (1, 2)])
    alone = sum(seconds for seconds, _ in one_after_the_other)
    print(json.dumps({"memory": arguments.memory, "peaks": "meet" if arguments.meet else "in turns",
                      "one after the other, s": round(alone, 2), "side by side, s": round(together, 2),
                      "ratio": round(together / alone, 3), "side by side": said}))


if __name__ == "__main__":
    main()
