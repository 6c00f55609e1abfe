"""Seeds of NATS users: made once, each into a file for its owner alone."""

from __future__ import annotations

import secrets
from pathlib import Path

import nkeys

from axiom_cli.key_files import new_key_file
from axiom_cli.nats_config.topology import NatsKeys, NatsTopology
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.errors import UnavailableError

SEED_FILE = "nats.nk"
"""In a folder of its user, which can be handed to that user's processes alone."""
_FOLDER_MODE = 0o700


def make_seed(seed_file: Path) -> str:
    """Make a user's nkey: its seed into `seed_file`, its public key told.

    ConflictError when the file is there: a seed that is lost can't be made again.
    """
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    with new_key_file(seed_file, what="seed") as write:
        write(seed.decode())
    return _public(seed)


def with_keys(topology: NatsTopology, users: Path) -> NatsTopology:
    """The topology with a key for each user that it gives none: of the seed in the user's folder
    below `users` (`gateway`, `node-agent.NODE`), made where it is not there yet.

    SettingsError for a file that holds no seed; UnavailableError for one that can't be written.
    """
    keys = topology.keys
    services = {name: getattr(keys, name) for name in NatsKeys.model_fields if name != "nodes"}
    made = {name: given or (_key_of(users / name),) for name, given in services.items()}
    nodes = {
        name: given or (_key_of(users / f"node-agent.{name}"),)
        for name, given in keys.nodes.items()
    }
    return topology.model_copy(update={"keys": NatsKeys(**made, nodes=nodes)})


def _key_of(folder: Path) -> str:
    seed_file = folder / SEED_FILE
    try:
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(f"{folder}: {error.strerror}") from error
    if not seed_file.exists():
        return make_seed(seed_file)
    seed = NatsCredentials(nkey_seed_file=seed_file).read_seed()
    assert seed is not None
    return _public(seed.encode())


def _public(seed: bytes) -> str:
    key: str = nkeys.from_seed(bytearray(seed)).public_key.decode()
    return key
