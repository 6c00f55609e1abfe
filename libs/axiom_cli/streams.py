"""The standard streams of the command: there, and each failure to write told once."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from axiom_cli.output import FAILED, WRONG_SETTINGS, OutputError

_STDIN, _STDOUT, _STDERR = range(3)


@contextmanager
def standard_streams() -> Iterator[None]:
    """Within it stdout raises OutputError where it can't be written, but for a reader that is gone,
    which ends the command as other programs. All is written at its end; else the exit code is 1.

    A stream that was closed is /dev/null: else some socket would get its number, and what is
    written to the stream. Without stdout nothing is done, with exit code 2."""
    closed = _reserve()
    if _STDOUT in closed:
        sys.stderr.write("error: standard output is closed\n")
        sys.exit(WRONG_SETTINGS)
    sys.stdout = _text(_Stdout(_STDOUT, "w", closefd=False), sys.stdout)
    try:
        try:
            yield
        finally:
            sys.stdout.flush()
    except OutputError as error:
        with suppress(OSError):
            sys.stderr.write(f"error: {error}\n")
        sys.exit(FAILED)
    except BrokenPipeError:
        _to_nowhere(_STDOUT)
        sys.exit(FAILED)


class _Stdout(io.FileIO):
    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            # What is buffered would fail again at the end, as a defect.
            _to_nowhere(_STDOUT)
            raise OutputError(f"standard output: {error.strerror}") from error


def _reserve() -> set[int]:
    """The standard descriptors that were closed, and are /dev/null now."""
    closed = set()
    for descriptor in (_STDIN, _STDOUT, _STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            _to_nowhere(descriptor)
            closed.add(descriptor)
    if _STDIN in closed:
        sys.stdin = io.TextIOWrapper(io.FileIO(_STDIN, "r", closefd=False))
    if _STDERR in closed:
        sys.stderr = _text(io.FileIO(_STDERR, "w", closefd=False), None)
    return closed


def _text(raw: io.FileIO, like: Any) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=like.encoding if like else None,
        errors=like.errors if like else "backslashreplace",
        line_buffering=like.line_buffering if like else True,
    )


def _to_nowhere(descriptor: int) -> None:
    """Inherited by children, as the standard streams are."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    if nowhere == descriptor:
        os.set_inheritable(descriptor, True)
    else:
        os.dup2(nowhere, descriptor)
        os.close(nowhere)
