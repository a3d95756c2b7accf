"""``cupy.cuda.memory``: the classes that call allocators."""

import ctypes
import os
import subprocess
import tempfile

KIND = os.environ["STAND_IN_CUPY"]

#: As the compiled module of CuPy calls the function: it catches every exception of C++, and keeps that of Python.
CALLER = r"""
extern "C" void *PyErr_Occurred(void);
extern "C" void PyErr_SetString(void *, const char *);
extern "C" void *PyExc_RuntimeError;
typedef void *(*function)(void *, unsigned long, int);
extern "C" void *call_malloc(function malloc, void *param, unsigned long size, int device) {
    try {
        return malloc(param, size, device);
    } catch (...) {
        if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "an exception of C++ alone");
        return nullptr;
    }
}
"""


def _compile():
    folder = tempfile.mkdtemp()
    source, library = f"{folder}/caller.cpp", f"{folder}/caller.so"
    with open(source, "w") as file:
        file.write(CALLER)
    subprocess.run(["c++", "-shared", "-fPIC", "-o", library, source], check=True)
    # With this class, ctypes holds the GIL and raises an exception that is set.
    call = ctypes.PyDLL(library).call_malloc
    call.restype = ctypes.c_void_p
    call.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return call


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes, "
                         f"limit set to: {limit:,} bytes).")


class MemoryPointer:
    def __init__(self, ptr, free):
        self.ptr, self._free = ptr, free

    def __del__(self):
        if self.ptr:
            self._free(self.ptr)


class CFunctionAllocator:
    def __init__(self, param, malloc_func, free_func, owner):
        self._call = _compile()
        self._param, self._malloc, self._owner = param, malloc_func, owner
        self._free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(free_func)

    def malloc(self, size):
        ptr = self._call(self._malloc, self._param, size, 0) if size else 0
        return MemoryPointer(ptr, lambda ptr: self._free(self._param, ptr, 0))


class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func):
        self._malloc, self._free = malloc_func, free_func

    def malloc(self, size):
        return MemoryPointer(self._malloc(size, 0) if size else 0, lambda ptr: self._free(ptr, 0))


class _Pool:
    """CuPy's own pool."""

    held = 1 << 20 if KIND == "holding" else 0

    def malloc(self, size):
        self.held += size
        return MemoryPointer(1 << 40, lambda ptr: None)

    def total_bytes(self):
        return self.held

    def used_bytes(self):
        return self.held // 2


pool = _Pool()
_allocator = pool.malloc


def get_allocator():
    return _allocator


def set_allocator(allocator=None):
    global _allocator
    _allocator = pool.malloc if allocator is None else allocator


def alloc(size):
    return _allocator(size)
