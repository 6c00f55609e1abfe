"""A block mirror on disk: what an agent knew of an engine when it ended, for the one after it.

An engine keeps its last messages only, so without this a restart of the agent would forget all
blocks that are older. The file is written beside and put in place whole. It is only ever used with
the message it was cut at: a feed that goes on from there finds out when the engine is another one.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec
import xxhash

from axiom_common.errors import WireError
from axiom_common.model.kv_events import BlockHash
from axiom_common.state.block_mirror import SavedBlock
from axiom_common.state.event_order import Position

FORMAT = 1
BYTES_MAX = 256 * 2**20
_DIGEST_BYTES = 8


class _File(msgspec.Struct, array_like=True):
    format: int
    engine: str
    base_model: str
    seq: int
    digest: int
    blocks: list[tuple[BlockHash, BlockHash | None, list[int], int, int, str, str | None]]


def write_mirror(
    path: Path, engine: str, base_model: str, position: Position, blocks: Sequence[SavedBlock]
) -> None:
    """Keep `blocks`, as they were after the message at `position`; OSError when that fails.

    `engine` and `base_model` (with its revision) say whose they are.
    """
    told = [
        (b.name, b.parent, list(b.tokens), b.copies, b.lower, b.adapter, b.cache_salt)
        for b in blocks
    ]
    file = _File(FORMAT, engine, base_model, position.seq, position.digest, told)
    content = msgspec.msgpack.encode(file)
    number, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        # Salts are secrets of tenants; the file is its owner's alone, as mkstemp makes it.
        with os.fdopen(number, "wb") as written:
            written.write(xxhash.xxh3_64_digest(content) + content)
            written.flush()
            os.fsync(written.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def read_mirror(
    path: Path, engine: str, base_model: str
) -> tuple[Position, list[SavedBlock]] | None:
    """What was kept of this engine; None when nothing was. WireError when it can't be read."""
    try:
        if path.stat().st_size > BYTES_MAX:
            raise WireError(f"{path} is larger than {BYTES_MAX} bytes")
        whole = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise WireError(f"{path}: {error}") from error
    content = whole[_DIGEST_BYTES:]
    if xxhash.xxh3_64_digest(content) != whole[:_DIGEST_BYTES]:
        raise WireError(f"{path} is not as it was written")
    try:
        file = msgspec.msgpack.decode(content, type=_File)
    except msgspec.MsgspecError as error:
        raise WireError(f"{path}: {error}") from error
    if (file.format, file.engine, file.base_model) != (FORMAT, engine, base_model):
        return None
    blocks = [
        SavedBlock(
            name=name,
            parent=parent,
            tokens=tokens,
            copies=copies,
            lower=lower,
            adapter=adapter,
            cache_salt=salt,
        )
        for name, parent, tokens, copies, lower, adapter, salt in file.blocks
    ]
    return Position(file.seq, file.digest), blocks
