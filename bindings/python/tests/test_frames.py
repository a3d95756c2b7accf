"""Histories name Python's callers wherever the interpreter happens to be when memory is freed.

``ci/pythons`` runs this file on every CPython that it finds.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

#: Every program ends by looking at the frames of every event. `f` holds memory in a local variable, which is freed
#: while the frame is torn down: called from C, no Python frame of that evaluation is left by then.
PRELUDE = """
import atexit, ctypes, faulthandler, functools, gc, itertools, json, operator, re, sys, threading, weakref
faulthandler.enable()
import cachette_gpu
a = cachette_gpu.Allocator("host")
s = a.create_stream()
a.record_memory_history(context="all", stacks="python")

def f(*_):
    memory = a.allocate(4096, s)
    return 0

class Held:
    def __init__(self): self.memory = a.allocate(512, s); local = a.allocate(512, s)
    def __eq__(self, other): local = a.allocate(512, s); return True
    def __hash__(self): local = a.allocate(512, s); return 1
    def __lt__(self, other): local = a.allocate(512, s); return False
    def __repr__(self): local = a.allocate(512, s); return "held"
    def __iter__(self): local = a.allocate(512, s); return iter(())
    def __getattr__(self, name): local = a.allocate(512, s); raise AttributeError(name)
    def __index__(self): local = a.allocate(512, s); return 1
    def __len__(self): local = a.allocate(512, s); return 1
    def __add__(self, other): local = a.allocate(512, s); return 1
    def __enter__(self): local = a.allocate(512, s); return self
    def __exit__(self, *raised): local = a.allocate(512, s)
    def __call__(self): local = a.allocate(512, s)

class Last(Held):
    def __del__(self): local = a.allocate(512, s); self.memory.free()

def generate():
    memory = a.allocate(4096, s)
    yield 1
    memory = a.allocate(4096, s)
    yield 2

class Later:
    def __await__(self): yield

async def coroutine(waits=False):
    memory = a.allocate(4096, s)
    if waits: await Later()

def drive(it):
    try: it.send(None)
    except StopIteration: pass

def fail(*_):
    memory = a.allocate(4096, s)
    raise KeyError

def check():
    (trace,) = a.snapshot()["device_traces"]
    frees = [it for it in trace if it["action"] == "free_requested"]
    assert frees
    for event in frees:
        for frame in event["frames"]:
            assert frame["name"] and frame["name"] != "<interpreter trampoline>", event
            assert frame["line"] > 0 or frame["filename"] == "<string>", event
"""

#: What each does some hundred times.
CALLERS = {
    "a function in Python": "f()",
    "map": "list(map(f, range(10)))",
    "filter": "list(filter(f, range(10)))",
    "starmap": "list(itertools.starmap(f, [(1,), (2,)]))",
    "a key of sorted": "sorted(range(10), key=f)",
    "a key of max": "max(range(10), key=f)",
    "reduce": "functools.reduce(f, range(10))",
    "partial": "functools.partial(f, 1)()",
    "a replacement of re": "re.sub('x', lambda _: (f(), 'y')[1], 'xxx')",
    "a hook of json": """json.loads('{"a": {"b": 1}}', object_hook=f)""",
    "a default of json": "json.dumps({'a': f}, default=f)",
    "==": "[Held()] == [Held()]",
    "hash": "{Held(): 1, Held(): 2}",
    "<": "sorted([Held(), Held(), Held()])",
    "repr": "repr([Held(), Held()])",
    "%": "'%r %r' % (Held(), Held())",
    "iter": "list(Held())",
    "getattr": "hasattr(Held(), 'other')",
    "index": "[1, 2, 3][Held()]",
    "bool": "bool(Held())",
    "+": "operator.add(Held(), 1)",
    "call": "list(map(operator.methodcaller('__call__'), [Held()]))",
    "with": "with Held(): pass",
    "exec": "exec('f()')",
    "__del__": "Last()",
    "__del__ of many": "[Last() for _ in range(3)]",
    "__del__ of a cycle": "last = Last(); last.me = last; del last; gc.collect(0)",
    "a weak reference": "held = Held(); weakref.finalize(held, f); del held",
    "a generator at its end": "list(generate())",
    "a generator that is left": "it = generate(); next(it); del it",
    "a generator that is closed": "it = generate(); next(it); it.close()",
    "a generator that C drives": "list(map(f, generate()))",
    "a coroutine": "drive(coroutine())",
    "a coroutine that is left": "it = coroutine(True); drive(it); it.close()",
    "a frame that raises": "try: list(map(fail, range(3)))\nexcept KeyError: pass",
    "a traceback": "try: fail()\nexcept KeyError as raised: kept = raised\ndel kept",
    "a callback of ctypes": "ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(f)(1)",
    "a comparison of qsort": """
kind = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
ctypes.CDLL(None).qsort((ctypes.c_int * 4)(*range(4)), 4, 4, kind(f))""",
    "a thread": "thread = threading.Thread(target=f); thread.start(); thread.join()",
    "a thread that C drives": """
thread = threading.Thread(target=lambda: list(map(f, range(3)))); thread.start(); thread.join()""",
    "many evaluations deep": """
def deep(n): return list(map(deep, [n - 1])) if n else list(map(f, range(3)))
deep(20)""",
    "the collector": "ring = [Held()]; ring.append(ring); del ring; gc.collect(0)",
    "a trace function": "sys.settrace(lambda *_: f() or None); f(); sys.settrace(None)",
    "a profile function": "sys.setprofile(f); f(); sys.setprofile(None)",
    "an audit hook": "hooks or hooks.append(sys.addaudithook(lambda *_: f())); sys.audit('mine')",
}

#: What is still held when the interpreter ends, or freed by what runs then.
ENDS = {
    "a global": "kept = [a.allocate(512, s) for _ in range(100)]",
    "a name of builtins": "import builtins; builtins.kept = Last()",
    "a cycle": "kept = Last(); kept.me = kept",
    "a generator": "kept = generate(); next(kept)",
    "a thread that stays": """
def work():
    while True: list(map(f, range(3)))
for _ in range(4): threading.Thread(target=work, daemon=True).start()
import time; time.sleep(0.2)""",
    "atexit": "atexit.register(lambda: list(map(f, range(3))))",
    "a thread's own": "own = threading.local(); own.kept = Last()",
    "an exit in C": "list(map(lambda _: sys.exit(0), [a.allocate(512, s)]))",
}


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", PRELUDE + program], capture_output=True, text=True, timeout=600,
                          check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


@pytest.mark.parametrize("program", CALLERS.values(), ids=CALLERS.keys())
def test_h1_a_free_has_its_callers_whoever_called(program: str) -> None:
    run(f"hooks = []\ndef act():\n{textwrap.indent(program.strip(), '    ')}\nfor _ in range(200): act()\ncheck()")


@pytest.mark.parametrize("program", ENDS.values(), ids=ENDS.keys())
def test_h1_memory_is_freed_while_the_interpreter_ends(program: str) -> None:
    # The first function of `atexit` is the last to be called.
    run(f"f()\natexit.register(check)\n{program.strip()}")
