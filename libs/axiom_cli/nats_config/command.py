"""`axiom nats config` and `axiom nats key`: files in, files out."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import nkeys

from axiom_cli.nats_config.files import nats_files
from axiom_cli.nats_config.topology import read_topology
from axiom_cli.output import print_figures, progress_console
from axiom_common.errors import ConflictError, UnavailableError

_SEED_MODE = 0o600


def write_config(topology_file: Path, out: Path, *, as_json: bool) -> None:
    """Write the servers' files into `out`. SettingsError for a wrong topology, nothing written."""
    files = nats_files(read_topology(topology_file))
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text)
    except OSError as error:
        raise UnavailableError(f"{error.filename}: {error.strerror}") from error
    if as_json:
        print_figures({"files": [str(out / name) for name in files]})
        return
    console = progress_console()
    for name in files:
        console.print(f"wrote {out / name}")


def write_key(seed_file: Path, *, as_json: bool) -> None:
    """Make a user's nkey: its seed into `seed_file`, for its owner alone, its public key told.

    ConflictError when the file is there: a seed that is lost can't be made again.
    """
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    public: str = nkeys.from_seed(bytearray(seed)).public_key.decode()
    try:
        descriptor = os.open(seed_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, _SEED_MODE)
    except FileExistsError as error:
        raise ConflictError(f"{seed_file} is there; a seed is never overwritten") from error
    except OSError as error:
        raise UnavailableError(f"{seed_file}: {error.strerror}") from error
    with os.fdopen(descriptor, "wb") as file:
        file.write(seed + b"\n")
    if as_json:
        print_figures({"public_key": public, "seed_file": str(seed_file)})
    else:
        print(public)
