"""``cupy_backends.cuda.stream``: the current stream, in a capsule as Cython makes it."""

import ctypes
import os

#: The handle of the current stream. A value that is no number is raised.
current = 0


@ctypes.PYFUNCTYPE(ctypes.c_ssize_t)
def _get_current_stream_ptr():
    return current


def _capsule(function, signature):
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.cast(function, ctypes.c_void_p), signature, None)


_SIGNATURE = b"int (int)" if os.environ["STAND_IN_CUPY"] == "other-stream" else b"intptr_t (void)"
__pyx_capi__ = {"get_current_stream_ptr": _capsule(_get_current_stream_ptr, _SIGNATURE)}
if os.environ["STAND_IN_CUPY"] == "no-stream":
    __pyx_capi__ = {}
