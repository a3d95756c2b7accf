"""Processes on one card with Cachette, as JSON lines.

    neighbours.py handover            how long 10 GiB of idle and of evictable memory take to change hands
    neighbours.py load [SECONDS]      8 processes with random loads, whose caches want 1.3 of the card and whose live
                                      memory has 0.95; contents are checked, and so is what all hold together
    neighbours.py top                 what `cachette top` says of PyTorch, CuPy and JAX programs beside what NVML says
"""

import json
import multiprocessing
import os
import random
import subprocess
import sys
import time

GIB = 1 << 30
PROCESSES = 8
DEMAND, LIVE = 1.3, 0.95


def start(config=""):
    """PyTorch over Cachette."""
    import cachette_gpu.torch
    cachette_gpu.torch.enable("expandable_segments:True" + config)
    import torch
    torch.cuda.init()
    return torch


def top():
    done = subprocess.run([sys.executable, "-m", "cachette_gpu", "top", "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


# How long memory takes to change hands.

def holder(orders, answers, size):
    """Holds memory that is idle, or in an evictable pool."""
    torch = start()
    import cachette_gpu.torch
    pool = cachette_gpu.torch.Pool(priority=0)
    with pool:
        kept = torch.full((size,), 7, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    for order in iter(orders.get, None):
        if order == "idle":
            idle = torch.empty(size, dtype=torch.uint8, device="cuda")
            torch.cuda.synchronize()
            del idle
        elif order == "copy":
            torch.cuda.synchronize()
            begun = time.perf_counter()
            host.copy_(kept, non_blocking=True)
            torch.cuda.synchronize()
            answers.put(time.perf_counter() - begun)
            continue
        elif order == "wake":
            with pool.make_resident():
                assert bool((kept == 7).all()), "contents are wrong"
                torch.cuda.synchronize()
        answers.put(True)


def handover():
    size = 10 * GIB
    context = multiprocessing.get_context("spawn")
    orders, answers = context.Queue(), context.Queue()
    other = context.Process(target=holder, args=(orders, answers, size), daemon=True)
    other.start()
    orders.put("copy")
    answers.get(timeout=120)
    torch = start()
    torch.ones(1, device="cuda")
    found = {"bytes": size, "idle, ms": [], "evictable, ms": [], "copy, ms": []}

    def receive(kind):
        """Takes all memory that is free, and then 10 GiB more."""
        held, step = [], 8 * GIB
        free = torch.cuda.mem_get_info()[0] - 512 * (1 << 20)
        while free >= step:
            held.append(torch.empty(step, dtype=torch.uint8, device="cuda"))
            free -= step
        if free > 0:
            held.append(torch.empty(free, dtype=torch.uint8, device="cuda"))
        torch.cuda.synchronize()
        begun = time.perf_counter()
        more = torch.empty(size - (1 << 30), dtype=torch.uint8, device="cuda")
        took = 1e3 * (time.perf_counter() - begun)
        more.fill_(1)
        torch.cuda.synchronize()
        found[kind].append(round(took, 1))
        del held, more
        torch.cuda.synchronize()
        torch.cuda.empty_cache()

    for _ in range(3):
        orders.put("idle")
        answers.get(timeout=120)
        receive("idle, ms")
    for _ in range(3):
        receive("evictable, ms")
        orders.put("wake")
        answers.get(timeout=120)
        orders.put("copy")
        found["copy, ms"].append(round(1e3 * answers.get(timeout=120), 1))
    orders.put(None)
    print(json.dumps({"handover": found}), flush=True)


# Random loads.

def load_one(number, seconds, budget, total, failures):
    torch = start(",reclaim_wait:60")
    most = int(DEMAND * total / PROCESSES)
    chance, held, mine = random.Random(number), [], 0
    end = time.monotonic() + seconds
    count = 0
    try:
        while time.monotonic() < end:
            # It grows to its peak and shrinks again, at its own pace.
            grows = chance.random() < (0.7 if (time.monotonic() + 7 * number) % 20 < 10 else 0.3)
            size = min(int(2 ** chance.uniform(16, 31)), most // 4)
            if grows and mine + size <= most:
                with budget.get_lock():
                    fits = budget.value >= size
                    if fits:
                        budget.value -= size
                if fits:
                    byte = count % 251
                    count += 1
                    held.append((torch.full((size,), byte, dtype=torch.uint8, device="cuda"), byte))
                    mine += size
            elif held:
                tensor, byte = held.pop(chance.randrange(len(held)))
                wrong = 0
                for part in tensor.split(256 << 20):
                    wrong += int((part != byte).sum())
                assert wrong == 0, f"{wrong} bytes are wrong"
                size = tensor.numel()
                del tensor
                part = None
                mine -= size
                with budget.get_lock():
                    budget.value += size
    except Exception as why:  # noqa: BLE001 - it is counted
        failures.put(f"process {number}: {type(why).__name__}: {str(why)[:400]}")
    import cachette_gpu.torch
    stats = cachette_gpu.torch.memory_stats()
    failures.put({key: stats.get(key) for key in ("num_reclaims", "reclaimed_bytes", "given_bytes", "num_ooms")} |
                 {"tensors": count})


def load(seconds):
    import ctypes
    context = multiprocessing.get_context("spawn")
    totals = subprocess.run([sys.executable, "-c", "import torch; print(*torch.cuda.mem_get_info())"],
                            capture_output=True, text=True, check=True)
    total = int(totals.stdout.split()[1])
    # Contexts of the processes take memory of the card too, and the matrices that a check needs.
    usable = total - PROCESSES * int(0.7 * GIB) - PROCESSES * GIB // 2
    budget = context.Value(ctypes.c_longlong, int(LIVE * usable))
    failures = context.Queue()
    children = [context.Process(target=load_one, args=(number, seconds, budget, total, failures))
                for number in range(PROCESSES)]
    for child in children:
        child.start()
    looks, most = 0, 0
    while any(child.is_alive() for child in children):
        time.sleep(1)
        reserved = sum(process["cachette"]["reserved"] for device in top()["devices"]
                       for process in device["processes"] if process["cachette"])
        looks, most = looks + 1, max(most, reserved)
    said = [failures.get(timeout=10) for _ in range(failures.qsize())]
    failed = [it for it in said if isinstance(it, str)]
    figures = [it for it in said if not isinstance(it, str)]
    add = lambda key: sum(it[key] or 0 for it in figures)
    print(json.dumps({"load": {
        "seconds": seconds, "processes": PROCESSES, "failures": failed, "exit codes": [it.exitcode for it in children],
        "tensors": add("tensors"), "asked": add("num_reclaims"), "received, GiB": round(add("reclaimed_bytes") / GIB),
        "given, GiB": round(add("given_bytes") / GIB), "looks": looks,
        "most reserved by all / card": round(most / total, 3)}}), flush=True)


# What `top` says.

PROGRAMS = {
    "torch": "import cachette_gpu.torch; cachette_gpu.torch.enable(); import torch; "
             "x = torch.ones(3 << 30, dtype=torch.uint8, device='cuda'); torch.mm(*[torch.ones(4096, 4096, device='cuda')] * 2)",
    "cupy": "import cachette_gpu.cupy; cachette_gpu.cupy.enable(); import cupy; x = cupy.ones(2 << 30, dtype='uint8')",
    "native": "import torch; x = torch.ones(1 << 30, dtype=torch.uint8, device='cuda')",
}


def look():
    children = []
    for name, program in PROGRAMS.items():
        text = program + "\nimport sys; print('ready', flush=True); sys.stdin.readline()"
        children.append((name, subprocess.Popen([sys.executable, "-c", text], stdin=subprocess.PIPE,
                                                stdout=subprocess.PIPE, text=True)))
    for _, child in children:
        child.stdout.readline()
    sample = top()
    print(json.dumps({"top": sample}), flush=True)
    print(subprocess.run([sys.executable, "-m", "cachette_gpu", "top", "--once"], capture_output=True, text=True).stdout)
    print(subprocess.run(["nvidia-smi", "--query-compute-apps=pid,used_memory", "--format=csv"], capture_output=True,
                         text=True).stdout)
    print({name: child.pid for name, child in children}, os.getpid())
    for _, child in children:
        child.stdin.close()
        child.wait()


if __name__ == "__main__":
    which = sys.argv[1] if len(sys.argv) > 1 else ""
    if which == "handover":
        handover()
    elif which == "load":
        load(float(sys.argv[2]) if len(sys.argv) > 2 else 300.0)
    elif which == "top":
        look()
    else:
        sys.exit(__doc__)
