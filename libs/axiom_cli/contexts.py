"""Contexts: the gateways that a user has names for, in one file of their own.

    in_use: prod
    contexts:
      prod: {url: https://axiom.example, key_file: /home/ann/.config/axiom/prod.key}

A secret is never in it, only the path of its file. Which gateway a command asks is a pure choice
(`chosen`) between what its options, the environment and this file say. The key of a context goes to
that context's URL and to no other.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import yaml
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from axiom_common.errors import NotFoundError, SettingsError, UnavailableError

DEFAULT_URL = "http://127.0.0.1:8080"
FILE_BYTES_MAX = 256 << 10
CONTEXTS_MAX = 200
NAME_MAX = 63
_FILE_MODE, _FOLDER_MODE = 0o600, 0o700
_LOCK_TRIES, _LOCK_WAIT_S = 100, 0.05


def gateway_url(text: str) -> str:
    """The URL of a gateway, without a slash at its end; ValueError when it is none."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or not text.isprintable():
        raise ValueError(f"{text!r} is no URL like http://host:port")
    if parts.username is not None or parts.query or parts.fragment:
        raise ValueError("a gateway's URL has no user, query or fragment")
    if parts.port == 0:
        raise ValueError(f"{text!r} has no port that can be asked")
    return text.rstrip("/")


Url = Annotated[str, Field(max_length=2048), AfterValidator(gateway_url)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=NAME_MAX)]


class Context(BaseModel):
    """A gateway, and the file with the key for it. `up_pid`: made by the `axiom up` of that
    process, while it runs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: Url
    key_file: Path | None = None
    up_pid: int | None = None


class Contexts(BaseModel):
    """What the file holds. `in_use` is one of them, or None."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    in_use: Name | None = None
    contexts: Annotated[dict[Name, Context], Field(max_length=CONTEXTS_MAX)] = {}

    @model_validator(mode="after")
    def _in_use_is_there(self) -> Contexts:
        if self.in_use is not None and self.in_use not in self.contexts:
            raise ValueError(f"in_use: there is no context {self.in_use!r}")
        return self

    def named(self, name: str) -> Context:
        """NotFoundError when there is none of that name."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none"
            raise NotFoundError(f"there is no context {name!r} (there are: {known})")
        return self.contexts[name]

    def using(self, name: str) -> Contexts:
        """With this one in use; NotFoundError."""
        self.named(name)
        return self._with(self.contexts, in_use=name)

    def having(self, name: str, context: Context) -> Contexts:
        """With this one made, or made so; SettingsError where that can't be."""
        return self._with({**self.contexts, name: context}, in_use=self.in_use)

    def without(self, name: str) -> Contexts:
        """Without this one; NotFoundError. None is in use afterwards if it was."""
        self.named(name)
        left = {other: context for other, context in self.contexts.items() if other != name}
        return self._with(left, in_use=self.in_use if self.in_use != name else None)

    def _with(self, contexts: Mapping[str, Context], *, in_use: str | None) -> Contexts:
        try:
            return Contexts(in_use=in_use, contexts=dict(contexts))
        except ValidationError as error:
            raise SettingsError(_first(error)) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What one level, the options or the environment, says of the gateway to ask."""

    context: str | None = None
    url: str | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A gateway to ask. `context` is its name where it is a context."""

    url: str
    key_file: Path | None
    context: str | None = None


def chosen(options: Named, environment: Named, contexts: Contexts) -> Choice:
    """The gateway by the options, else by the environment, else the context in use, else the one of
    this host. The key file likewise: the one of an option comes first, then the one of a context
    that an option named, and so on.

    A URL alone takes the key of the context with exactly this URL, if all that have it agree.
    SettingsError for a URL that is none, for a context that there is not, and when one level names
    a context and a URL.
    """
    where = _where(options, environment, contexts)
    if where.context is None:
        return Choice(
            url=where.url,
            key_file=options.key_file or environment.key_file or _key_of_url(contexts, where.url),
        )
    levels = (
        options.key_file,
        where.key_file if options.context else None,
        environment.key_file,
        where.key_file,
    )
    return Choice(
        url=where.url,
        key_file=next((file for file in levels if file is not None), None),
        context=where.context,
    )


def _where(options: Named, environment: Named, contexts: Contexts) -> Choice:
    for level in (options, environment):
        if level.context is not None and level.url is not None:
            raise SettingsError("a context and a URL: name one of them, a context has its own URL")
        if level.url is not None:
            try:
                return Choice(url=gateway_url(level.url), key_file=None)
            except ValueError as error:
                raise SettingsError(f"--url: {error}") from error
        if level.context is not None:
            return _choice_of(level.context, contexts)
    if contexts.in_use is not None:
        return _choice_of(contexts.in_use, contexts)
    return Choice(url=DEFAULT_URL, key_file=None)


def _choice_of(name: str, contexts: Contexts) -> Choice:
    try:
        context = contexts.named(name)
    except NotFoundError as error:
        raise SettingsError(str(error)) from error
    return Choice(url=context.url, key_file=context.key_file, context=name)


def _key_of_url(contexts: Contexts, url: str) -> Path | None:
    files = {context.key_file for context in contexts.contexts.values() if context.url == url}
    return files.pop() if len(files) == 1 else None


@dataclass(frozen=True, slots=True)
class ContextsFile:
    """The file. One process at a time changes it, and a reader never sees half a change."""

    path: Path
    _lock_wait_s: float = field(default=_LOCK_WAIT_S, repr=False)

    def read(self) -> Contexts:
        """What it holds; nothing while it is not there. SettingsError when it can't be read."""
        try:
            with self.path.open("rb") as file:
                data = file.read(FILE_BYTES_MAX + 1)
        except FileNotFoundError:
            return Contexts()
        except OSError as error:
            raise SettingsError(f"{self.path}: {error.strerror}") from error
        if len(data) > FILE_BYTES_MAX:
            raise SettingsError(f"{self.path}: above {FILE_BYTES_MAX} bytes")
        try:
            return Contexts.model_validate(yaml.safe_load(data) or {})
        except yaml.YAMLError as error:
            raise SettingsError(f"{self.path}: {' '.join(str(error).split())}") from error
        except ValidationError as error:
            raise SettingsError(f"{self.path}: {_first(error)}") from error

    def change(self, edit: Callable[[Contexts], Contexts]) -> Contexts:
        """Write what `edit` makes of it, whole or not at all. What `edit` raises is raised."""
        path = self.path.resolve()
        try:
            path.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            with self._locked(path.with_name(path.name + ".lock")):
                before = self.read()
                after = edit(before)
                if after != before:
                    _write(path, after)
        except OSError as error:
            raise SettingsError(f"{self.path}: {error.strerror}") from error
        return after

    @contextlib.contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, _FILE_MODE)
        try:
            for _ in range(_LOCK_TRIES):
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(self._lock_wait_s)
            else:
                raise UnavailableError(f"{path} is locked by another process")
            yield
        finally:
            os.close(descriptor)


def _write(path: Path, contexts: Contexts) -> None:
    text = yaml.safe_dump(contexts.model_dump(mode="json", exclude_none=True), sort_keys=False)
    # A file made so has the mode 0600.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


def _first(error: ValidationError) -> str:
    found = error.errors(include_url=False)[0]
    path = ".".join(str(part) for part in found["loc"])
    return f"{path}: {found['msg']}" if path else str(found["msg"])
