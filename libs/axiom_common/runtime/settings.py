"""Settings: one frozen object a process, read once in `__main__` and passed on.

Order, later wins: defaults, a YAML file (`--config`), environment `AXIOM_<FIELD>` (nested fields by
`__`), flags. Wrong settings are one clear line and exit code 2.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Generic, NoReturn, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, EnvSettingsSource, SettingsConfigDict

from axiom_common.errors import SettingsError

Port = Annotated[int, Field(ge=0, le=65535)]
Token = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
NatsUrl = Annotated[str, Field(pattern=r"^(nats|tls|wss?)://[^\s]+$", max_length=4096)]
"""Servers of one cluster, separated by commas."""
RedisUrl = Annotated[
    str,
    Field(
        pattern=(
            r"^((rediss?|unix)://\S+"
            r"|rediss?\+cluster://([^\s/@]*@)?[^\s/,:@]+:\d+(,[^\s/,:@]+:\d+)*)$"
        ),
        max_length=4096,
    ),
]
"""One server, or some nodes of a cluster: `redis+cluster://user:password@host:port,host:port`; with
an `s` behind `redis` over TLS."""
HttpUrl = Annotated[str, Field(pattern=r"^https?://[^\s/]+(/\S*)?$", max_length=1024)]
PositiveMs = Annotated[float, Field(gt=0, le=3_600_000)]


SECRET_MIN, SECRET_MAX = 32, 256
_USER = re.compile(r"(?<=//)[^/@\s]*@|(?<=,)[^/,@\s]*@")


class ServiceSettings(BaseSettings):
    """What every service has. Ports 0 pick a free one.

    The seed file says who the process is to NATS; CA, certificate and key are for a NATS with TLS.
    `nats_replicas` is for the buckets that the process makes: 3 on a cluster of 3 servers.
    """

    model_config = SettingsConfigDict(
        env_prefix="AXIOM_", env_nested_delimiter="__", frozen=True, extra="forbid"
    )

    region: Token = "local"
    nats_url: NatsUrl = "nats://127.0.0.1:4222"
    nats_nkey_seed_file: Path | None = None
    nats_ca_file: Path | None = None
    nats_cert_file: Path | None = None
    nats_key_file: Path | None = None
    nats_replicas: Annotated[int, Field(ge=1, le=5)] = 1
    redis_url: RedisUrl = "redis://127.0.0.1:6379"
    host: str = "127.0.0.1"
    log_level: Annotated[str, Field(pattern="^(debug|info|warning|error)$")] = "info"

    @model_validator(mode="after")
    def _a_certificate_has_its_key(self) -> Self:
        if (self.nats_cert_file is None) != (self.nats_key_file is None):
            raise ValueError("nats_cert_file and nats_key_file go together")
        return self


S = TypeVar("S", bound=ServiceSettings)


def load_settings(kind: type[S], *, config: Path | None = None, **flags: Any) -> S:
    """Build the settings; SettingsError in one line. Flags that are None were not given."""
    given: dict[str, Any] = {}
    if config is not None:
        given |= _read_yaml(config)
    given |= EnvSettingsSource(kind)()
    given |= {name: value for name, value in flags.items() if value is not None}
    try:
        return kind(**given)
    except ValidationError as error:
        raise SettingsError(_one_line(error)) from error


class SettingsSource(Generic[S]):
    """Where a process's settings come from; the file may be read again. `settings` are those that
    were read last without an error."""

    def __init__(self, kind: type[S], *, config: Path | None, flags: Mapping[str, Any]) -> None:
        self._kind = kind
        self._config = config
        self._flags = flags
        self._seen: bytes | None = None
        self.settings = self.read()

    def changed(self) -> bool:
        """Whether the file is another than when it was read last. One that can't be read is: to
        read it says why."""
        return self._config is not None and self._content() != self._seen

    def read(self) -> S:
        """Build the settings; SettingsError in one line."""
        self._seen = self._content()
        self.settings = load_settings(self._kind, config=self._config, **self._flags)
        return self.settings

    def _content(self) -> bytes | None:
        try:
            return self._config.read_bytes() if self._config is not None else None
        except OSError:
            return None


def read_secret(path: Path | None) -> str | None:
    """The one line of a file; SettingsError when that can't be had. None: no file was named."""
    if path is None:
        return None
    try:
        secret = path.read_text(encoding="ascii").strip()
    except OSError as error:
        raise SettingsError(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: {error}") from error
    if not SECRET_MIN <= len(secret) <= SECRET_MAX or len(secret.split()) != 1:
        raise SettingsError(f"{path}: expected one word of {SECRET_MIN} to {SECRET_MAX} characters")
    return secret


def without_users(text: str) -> str:
    """A text without the users and passwords of the URLs in it, lists of servers included."""
    return _USER.sub("", text)


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"{path}: {' '.join(str(error).split())}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{path}: expected a mapping of settings")
    return content


def _one_line(error: ValidationError) -> str:
    first = error.errors()[0]
    where = ".".join(str(part) for part in first["loc"]) or "settings"
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {first['msg']}{more}"


def exit_on_bad_settings(error: SettingsError) -> NoReturn:
    """Print the one line and end with 2."""
    sys.stderr.write(f"settings: {error}\n")
    sys.exit(2)
