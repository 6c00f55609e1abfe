"""`axiom adapters apply FILE`: declare base models and adapters from one YAML file.

    base_models:
      - name: llama-3-8b
    adapters:
      - {name: acme/sql, base_model: llama-3-8b, path: /adapters/sql, rank: 16}

The fields are those of the admin API, to which the declarations are put one by one; what stands
already stays unchanged. Nothing is withdrawn because the file does not name it. An adapter is read
first, and put only if it is still as it was read: what others change meanwhile is theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import IO, Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from axiom_cli.admin import ABSENT, Admin, Target, admin_of
from axiom_cli.admin_client import BusyError, NoAnswerError
from axiom_common.errors import (
    AxiomError,
    ConflictError,
    InvalidInputError,
    NotFoundError,
    PreconditionError,
)
from axiom_common.wire import rest

FILE_BYTES_MAX = 16 << 20
NODES_MAX = 1_000_000
"""Values in one file, aliases counted as often as they stand for something."""
DEPTH_MAX = 8
ERRORS_SHOWN_MAX = 10
PUTS_AT_ONCE = 8
TRIES_MAX = 4

_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Path = tuple[str | int, ...]


class _DeclaredModel(rest.BaseModelPut):
    name: rest.PublicName


class _DeclaredAdapter(rest.AdapterPut):
    name: rest.PublicName


class _File(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    base_models: list[_DeclaredModel] = []
    adapters: list[_DeclaredAdapter] = []


class Kind(StrEnum):
    """What a declaration declares."""

    BASE_MODEL = "base-model"
    ADAPTER = "adapter"


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """One declaration; `line` is where it begins in the file, from 1."""

    kind: Kind
    name: str
    body: rest.BaseModelPut | rest.AdapterPut
    line: int


class Result(StrEnum):
    """What became of a declaration."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """One declaration's result; `revision` of an adapter, `detail` where people should look."""

    put: Put
    result: Result
    revision: int | None = None
    detail: str = ""

    @property
    def failed(self) -> bool:
        """Whether it is not declared now as the file says."""
        return self.result in (Result.REFUSED, Result.UNAVAILABLE)


def read_declarations(file: IO[bytes]) -> list[Put]:
    """What a file declares; InvalidInputError, as of `parse_declarations`, and OSError."""
    content = file.read(FILE_BYTES_MAX + 1)
    if len(content) > FILE_BYTES_MAX:
        raise InvalidInputError(f"above {FILE_BYTES_MAX} bytes")
    try:
        return parse_declarations(content.decode())
    except UnicodeDecodeError as error:
        raise InvalidInputError(f"no UTF-8: {error.reason} at byte {error.start}") from error


def parse_declarations(text: str) -> list[Put]:
    """What a file declares, base models first, which is nothing where its lists are empty;
    InvalidInputError names line and field otherwise, and for a file without lists.

    Its message has one line for each of the first `ERRORS_SHOWN_MAX` errors.
    """
    reading = _Reading()
    content = reading.read(text)
    if content is None or content == {}:
        raise InvalidInputError("there is nothing in it: it has base_models, adapters, or both")
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        raise _invalid(error, reading.lines) from error
    models = [
        Put(kind=Kind.BASE_MODEL, name=m.name, body=m, line=reading.line(("base_models", index)))
        for index, m in enumerate(file.base_models)
    ]
    adapters = [
        Put(kind=Kind.ADAPTER, name=a.name, body=a, line=reading.line(("adapters", index)))
        for index, a in enumerate(file.adapters)
    ]
    _refuse_twice([*models, *adapters])
    return [*models, *adapters]


async def apply_declarations(
    target: Target,
    puts: list[Put],
    *,
    dry_run: bool = False,
    on_put: Callable[[int], None] = lambda _count: None,
) -> list[Applied]:
    """Put all to the gateway, in the order given; base models before adapters.

    An item that is refused does not stop the others. Once the gateway gives no answer, what was not
    put yet is `unavailable` as well. A dry run tells what would become of each. `on_put` hears how
    many are done by now.
    """
    results: list[Applied] = []
    models = frozenset(put.name for put in puts if put.kind is Kind.BASE_MODEL)
    async with admin_of(target) as admin:
        applier = _Applier(admin, models, on_put, dry_run=dry_run)
        for kind in Kind:
            results += await applier.apply([put for put in puts if put.kind is kind])
    return results


class _Applier:
    """`models` are the base models of the file, which may be unknown in a dry run."""

    def __init__(
        self,
        admin: Admin,
        models: frozenset[str],
        on_put: Callable[[int], None],
        *,
        dry_run: bool,
    ) -> None:
        self._admin = admin
        self._models = models
        self._dry_run = dry_run
        self._on_put = on_put
        self._done = 0
        self._away = ""

    async def apply(self, puts: list[Put]) -> list[Applied]:
        results: dict[int, Applied] = {}
        waiting = iter(list(enumerate(puts)))

        async def work(items: Iterator[tuple[int, Put]]) -> None:
            for index, put in items:
                results[index] = await self._apply(put)
                self._done += 1
                self._on_put(self._done)

        async with asyncio.TaskGroup() as group:
            for number in range(min(PUTS_AT_ONCE, len(puts))):
                group.create_task(work(waiting), name=f"apply {number}")
        return [results[index] for index in range(len(puts))]

    async def _apply(self, put: Put) -> Applied:
        detail = self._away
        for _ in range(0 if detail else TRIES_MAX):
            try:
                return await self._put(put)
            except NoAnswerError as error:
                self._away = detail = str(error)
                break
            except BusyError as error:
                detail = str(error)
                await asyncio.sleep(error.retry_after_s)
            except AxiomError as error:
                return Applied(put=put, result=Result.REFUSED, detail=str(error))
        return Applied(put=put, result=Result.UNAVAILABLE, detail=detail)

    async def _put(self, put: Put) -> Applied:
        if isinstance(put.body, rest.AdapterPut):
            return await self._put_adapter(put, put.body)
        outcome = await self._admin.put_base_model(put.name, dry_run=self._dry_run)
        return Applied(put=put, result=Result(outcome.value))

    async def _put_adapter(self, put: Put, body: rest.AdapterPut) -> Applied:
        first = seen = await self._seen(put.name)
        for _ in range(TRIES_MAX):
            try:
                outcome, adapter = await self._admin.put_adapter(
                    body.to_spec(put.name),
                    version=ABSENT if seen is None else seen.version,
                    dry_run=self._dry_run,
                )
            except PreconditionError:
                seen = await self._seen(put.name)
                if _said(seen) not in (_said(first), _said(body)):
                    break
                continue
            known = adapter.base_model_known or adapter.base_model in self._models
            return Applied(
                put=put,
                result=Result(outcome.value),
                revision=adapter.revision,
                detail="" if known else f"nobody knows base model {adapter.base_model!r}",
            )
        raise ConflictError(
            "others changed it at the same time and it is as they want it: look at it with "
            f"`axiom adapters show {put.name}`, then apply again"
        )

    async def _seen(self, name: str) -> rest.Adapter | None:
        try:
            return await self._admin.adapter(name)
        except NotFoundError:
            return None


def _said(adapter: rest.Adapter | rest.AdapterPut | None) -> tuple[object, ...]:
    """What people say of an adapter; nothing of one that is not there."""
    if adapter is None:
        return ()
    return (
        adapter.base_model,
        adapter.path,
        adapter.rank,
        adapter.size_bytes,
        adapter.tenant,
    )


@dataclass(slots=True)
class _Reading:
    """A YAML document as plain values, and the line of each."""

    lines: dict[_Path, int] = field(default_factory=dict)
    _nodes: int = 0

    def read(self, text: str) -> Any:
        try:
            loader = _LOADER(text)
            try:
                root = loader.get_single_node()
                return None if root is None else self._value(loader, root, ())
            finally:
                loader.dispose()
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            where = f"line {mark.line + 1}: " if mark else ""
            raise InvalidInputError(f"{where}{error.problem or error.context}") from error
        except yaml.YAMLError as error:
            raise InvalidInputError(" ".join(str(error).split())) from error

    def line(self, path: _Path) -> int:
        """The line of a value, or of the nearest one around it."""
        while path not in self.lines and path:
            path = path[:-1]
        return self.lines.get(path, 1)

    def _value(self, loader: Any, node: yaml.Node, path: _Path) -> Any:
        line = node.start_mark.line + 1
        self.lines[path] = line
        self._nodes += 1
        if self._nodes > NODES_MAX or len(path) > DEPTH_MAX:
            raise InvalidInputError(f"line {line}: too many values, or too deep")
        if isinstance(node, yaml.SequenceNode):
            return [self._value(loader, item, (*path, i)) for i, item in enumerate(node.value)]
        if not isinstance(node, yaml.MappingNode):
            try:
                return loader.construct_object(node)
            except ValueError as error:
                raise InvalidInputError(f"line {line}: {error}") from error
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            if key in found:
                line = key_node.start_mark.line + 1
                raise InvalidInputError(f"line {line}: {key!r} is there twice", path=key)
            found[key] = self._value(loader, value_node, (*path, key))
        return found


def _invalid(error: ValidationError, lines: dict[_Path, int]) -> InvalidInputError:
    reading = _Reading(lines=lines)
    errors = error.errors(include_url=False)
    shown = [
        f"line {reading.line(found['loc'])}: {_dotted(found['loc'])}: {found['msg']}"
        for found in errors[:ERRORS_SHOWN_MAX]
    ]
    if len(errors) > len(shown):
        shown.append(f"and {len(errors) - len(shown)} more")
    return InvalidInputError("\n".join(shown), path=_dotted(errors[0]["loc"]))


def _dotted(path: _Path) -> str:
    return ".".join(str(part) for part in path) or "file"


def _refuse_twice(puts: list[Put]) -> None:
    """A name stands for one thing: clients ask for base models and adapters alike."""
    first: dict[str, Put] = {}
    for put in puts:
        before = first.setdefault(put.name, put)
        if before is not put:
            raise InvalidInputError(
                f"line {put.line}: {put.name!r} is declared on line {before.line} already",
                path="name",
            )
