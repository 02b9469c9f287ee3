"""Another process's memory, read straight from there (`process_vm_readv(2)`), where the kernel allows it."""

import ctypes
import functools
import os

# From how many bytes on one copy between processes is faster than two through the kernel's buffers.
READ_MIN = 16 << 10
# At most so much in one call: the system cuts longer ones off.
CALL_MAX = 1 << 30


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("length", ctypes.c_size_t)]


def read(process, address, target, length):
    """Reads `length` bytes at an address of a process to an address of this one. Whether all came."""
    call = system_call()
    if call is None:
        return False
    done = 0
    while done < length:
        rest = min(length - done, CALL_MAX)
        here, there = Vector(target + done, rest), Vector(address + done, rest)
        count = call(process, here, 1, there, 1, 0)
        if count <= 0:
            return False
        done += count
    return True


@functools.cache
def system_call():
    """`process_vm_readv`; None on a system without it. To look it up takes twice as long as to read 64 KiB."""
    try:
        call = ctypes.CDLL(None, use_errno=True).process_vm_readv
    except (AttributeError, OSError):
        return None
    call.restype = ctypes.c_ssize_t
    call.argtypes = [ctypes.c_int, ctypes.POINTER(Vector), ctypes.c_ulong, ctypes.POINTER(Vector), ctypes.c_ulong,
                     ctypes.c_ulong]
    return call


def is_wanted():
    """Whether this process's settings allow it, as for the library's own collectives."""
    return os.environ.get("TRIBUTARY_CROSS_MEMORY", "auto") != "off"
