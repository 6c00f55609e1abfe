"""`axiom nats config`, `axiom nats key` and `axiom nats setup`: files in, files out."""

from __future__ import annotations

from pathlib import Path

from axiom_cli.key_files import key_file
from axiom_cli.nats_config.files import nats_files
from axiom_cli.nats_config.seeds import make_seed, with_keys
from axiom_cli.nats_config.topology import NatsTopology, read_topology
from axiom_cli.output import print_figures, progress_console
from axiom_common.errors import UnavailableError

SERVER_FOLDER = "server"
ADMIN_FOLDER = "admin"
ADMIN_KEY = "admin.key"
USERS_FOLDER = "users"


def write_config(topology_file: Path, out: Path, *, as_json: bool) -> None:
    """Write the servers' files into `out`. SettingsError for a wrong topology, nothing written."""
    _tell(_write(read_topology(topology_file), out), as_json=as_json)


def write_setup(topology_file: Path, out: Path, *, as_json: bool) -> None:
    """Write the servers' files into `out/server`, below `out/users` a seed for each user that the
    topology has no key of, and into `out/admin` an admin's key for the region's gateways. What was
    made before stays, so doing it again changes nothing.

    For servers and users that start on one host; elsewhere seeds are made where they are used.
    """
    topology = with_keys(read_topology(topology_file), out / USERS_FOLDER)
    written = _write(topology, out / SERVER_FOLDER)
    key_file(_folder(out / ADMIN_FOLDER) / ADMIN_KEY)
    _tell(written, as_json=as_json)


def write_key(seed_file: Path, *, as_json: bool) -> None:
    """Make a user's nkey: its seed into `seed_file`, for its owner alone, its public key told.

    ConflictError when the file is there: a seed that is lost can't be made again.
    """
    public = make_seed(seed_file)
    if as_json:
        print_figures({"public_key": public, "seed_file": str(seed_file)})
    else:
        print(public)


def _folder(path: Path) -> Path:
    """A folder of its owner alone."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{path}: {error.strerror}") from error
    return path


def _write(topology: NatsTopology, out: Path) -> list[Path]:
    files = nats_files(topology)
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (out / name).write_text(text)
    except OSError as error:
        raise UnavailableError(f"{error.filename}: {error.strerror}") from error
    return [out / name for name in files]


def _tell(files: list[Path], *, as_json: bool) -> None:
    if as_json:
        print_figures({"files": [str(path) for path in files]})
        return
    console = progress_console()
    for path in files:
        console.print(f"wrote {path}")
