"""Files that hold a secret: made once, for their owner alone to read."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from axiom_common.errors import ConflictError, UnavailableError
from axiom_common.runtime.api_secret import new_secret
from axiom_common.runtime.settings import read_secret

_FILE_MODE = 0o600


@contextmanager
def new_key_file(path: Path, *, what: str = "key") -> Iterator[Callable[[str], None]]:
    """A new file, and how the secret of a `what` is put into it; it goes again when none was.

    ConflictError when the file is there: a secret that is lost can't be made again.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _FILE_MODE)
    except FileExistsError as error:
        raise ConflictError(f"{path} is there; a {what} is never overwritten") from error
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from error
    with os.fdopen(descriptor, "w") as file:
        try:
            yield lambda secret: _write(file, secret)
        finally:
            if not file.tell():
                path.unlink()


def make_key_file(path: Path) -> str:
    """Make a new secret, write it into a new file, and return it; ConflictError when the file is
    there."""
    secret = new_secret()
    with new_key_file(path) as write:
        write(secret)
    return secret


def _write(file: TextIO, secret: str) -> None:
    try:
        file.write(secret + "\n")
        file.flush()
        os.fsync(file.fileno())
    except OSError as error:
        raise UnavailableError(f"{file.name}: {error.strerror}; the secret is lost") from error


def key_file(path: Path) -> str:
    """The secret in a file, which is made where it is missing; SettingsError when it holds none."""
    if not path.exists():
        return make_key_file(path)
    secret = read_secret(path)
    assert secret is not None
    return secret
