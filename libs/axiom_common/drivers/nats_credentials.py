"""Who a process is to NATS: the seed of its nkey, and its side of TLS.

The files are read again for each session, so keys and certificates are replaced by replacing files.
A seed signs the server's challenge and never leaves the process.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import nkeys

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import ServiceSettings

_USER_SEED = "SU"


@dataclass(frozen=True, slots=True, kw_only=True)
class NatsCredentials:
    """Files; None where the server asks for no such thing."""

    nkey_seed_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    @classmethod
    def of(cls, settings: ServiceSettings) -> NatsCredentials:
        """As the settings of a service name them."""
        return cls(
            nkey_seed_file=settings.nats_nkey_seed_file,
            ca_file=settings.nats_ca_file,
            cert_file=settings.nats_cert_file,
            key_file=settings.nats_key_file,
        )

    def read_seed(self) -> str | None:
        """The seed; SettingsError names the file that holds none."""
        path = self.nkey_seed_file
        if path is None:
            return None
        try:
            lines = path.read_text().split()
        except (OSError, UnicodeDecodeError) as error:
            raise SettingsError(f"nats_nkey_seed_file: {path}: {_cause(error)}") from error
        # Tools write the public key below the seed.
        seed = next((line for line in lines if line.startswith(_USER_SEED)), "")
        if not _is_user_seed(seed):
            raise SettingsError(
                f"nats_nkey_seed_file: {path} holds no seed of a user's nkey, which begins with SU"
            )
        return seed

    def tls(self) -> ssl.SSLContext | None:
        """TLS with these files; None where there are none. SettingsError when they don't fit."""
        if self.ca_file is None and self.cert_file is None:
            return None
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
        except (OSError, ssl.SSLError) as error:
            raise SettingsError(f"nats_ca_file: {self.ca_file}: {_cause(error)}") from error
        if self.cert_file is not None:
            try:
                context.load_cert_chain(self.cert_file, self.key_file)
            except (OSError, ssl.SSLError) as error:
                raise SettingsError(
                    f"nats_cert_file, nats_key_file: {self.cert_file}, {self.key_file}:"
                    f" {_cause(error)}"
                ) from error
        return context


def _is_user_seed(seed: str) -> bool:
    try:
        kind, raw = nkeys.decode_seed(bytearray(seed.encode()))
        # Encoded again because decoding looks at no check sum.
        encoded: bytes = nkeys.encode_seed(bytes(raw), nkeys.PREFIX_BYTE_USER)
    except (nkeys.NkeysError, ValueError):
        return False
    return kind == nkeys.PREFIX_BYTE_USER and encoded.decode() == seed


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
