"""An adapter's files on this host: how much of them lies in the page cache, and bringing it there.

Everything here blocks, for as long as the file system likes. Errors are answers: None, or nothing.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

FILES_MAX = 4096
CHUNK_BYTES = 4 << 20
_CACHESTAT = 451
"""The number of the system call, on every architecture but Alpha; Linux 6.5 and later."""
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
)
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.mincore.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)
_MAP_FAILED = ctypes.c_void_p(-1).value


class AdapterFile(NamedTuple):
    """A regular file; (device, inode) tell whether two paths are one file."""

    path: Path
    device: int
    inode: int
    size: int


def files_of(path: str) -> Iterator[AdapterFile]:
    """The regular files of an adapter: of its directory, or the one that `path` is."""
    if not path.startswith("/"):
        return  # A name in some hub: the engine knows where it lies, we do not.
    try:
        whole = Path(path).stat()
        if not stat.S_ISDIR(whole.st_mode):
            found: Iterable[tuple[str, os.stat_result]] = [(path, whole)]
        else:
            with os.scandir(path) as entries:
                found = [(e.path, e.stat()) for e in islice(entries, FILES_MAX + 1)]
    except (OSError, ValueError):
        return
    for name, seen in found:
        if stat.S_ISREG(seen.st_mode):
            yield AdapterFile(Path(name), seen.st_dev, seen.st_ino, seen.st_size)


def cached_bytes(paths: Iterable[str]) -> int | None:
    """Bytes of all these adapters' files in the page cache. None where the system does not say, and
    of more than `FILES_MAX` files: a part of the sum would be no answer."""
    cached, seen = 0, set()
    for path in paths:
        for file in files_of(path):
            if (file.device, file.inode) in seen:
                continue
            seen.add((file.device, file.inode))
            part = _cached_of(file) if len(seen) <= FILES_MAX else None
            if part is None:
                return None
            cached += part
    return cached


def read_ahead(path: str, bytes_max: int, wanted: Callable[[], bool]) -> int | None:
    """Read the adapter's files, largest first, up to `bytes_max` and while `wanted()`; the bytes
    read, None where there is no file to read. A file that is cached whole counts as read."""
    files = sorted(files_of(path), key=lambda file: file.size, reverse=True)
    buffer = bytearray(max(0, min(CHUNK_BYTES, bytes_max)))
    read, opened = 0, 0
    for file in files:
        fd = _opened(file)
        if fd is None:
            continue
        opened += 1
        try:
            if read + file.size <= bytes_max and _cached_of(file) == file.size:
                read += file.size
                continue
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
            while read < bytes_max and wanted():
                count = os.readv(fd, [memoryview(buffer)[: bytes_max - read]])
                if count == 0:
                    break
                read += count
        except OSError:
            continue
        finally:
            os.close(fd)
    return read if opened else None


def _opened(file: AdapterFile) -> int | None:
    try:
        return os.open(file.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return None


def _cached_of(file: AdapterFile) -> int | None:
    if file.size == 0:
        return 0
    fd = _opened(file)
    if fd is None:
        return None
    try:
        pages = _cachestat(fd)
        if pages is None:
            pages = _mincore(fd, file)
    finally:
        os.close(fd)
    return None if pages is None else min(file.size, pages * mmap.PAGESIZE)


def _cachestat(fd: int) -> int | None:
    """Pages of the file in the page cache; None on older kernels and where it may not be asked."""
    whole = (ctypes.c_uint64 * 2)(0, 0)
    counts = (ctypes.c_uint64 * 5)()
    code = _libc.syscall(
        ctypes.c_long(_CACHESTAT),
        ctypes.c_uint(fd),
        ctypes.byref(whole),
        ctypes.byref(counts),
        ctypes.c_uint(0),
    )
    return int(counts[0]) if code == 0 else None


def _mincore(fd: int, file: AdapterFile) -> int | None:
    """The same on older kernels. To who may not write a file they say that all of it is cached, so
    only an owner or a writer is to believe them."""
    if os.stat(fd).st_uid != os.geteuid() and not os.access(file.path, os.W_OK):
        return None
    address = _libc.mmap(None, file.size, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
    if address in (None, _MAP_FAILED):
        return None
    try:
        pages = -(-file.size // mmap.PAGESIZE)
        cached = (ctypes.c_ubyte * pages)()
        if _libc.mincore(address, file.size, ctypes.byref(cached)) != 0:
            return None
        return sum(page & 1 for page in bytes(cached))
    finally:
        _libc.munmap(address, file.size)
