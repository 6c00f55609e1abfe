"""What every write to the admin API has in common: its precondition, its dry run, its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Header, Query, Response
from pydantic import BaseModel, ValidationError

from axiom_common.errors import InvalidInputError
from axiom_common.runtime.desired_store import ABSENT, ANY_VERSION, IfVersion, Outcome
from axiom_common.wire import headers, rest
from axiom_gateway.admin_problems import BODY, PATH_MAX, first_of

_ONE_ETAG = r'(?:W/)?"[\x21\x23-\x7e]*"'
_IF_MATCH = rf"^(\*|{_ONE_ETAG}([ \t]*,[ \t]*{_ONE_ETAG})*)$"
_ETAG, _ETAGS = re.compile(_ONE_ETAG), re.compile(_IF_MATCH)
_OWN_ETAG = re.compile(r'"([0-9]{1,16})"')
_B = TypeVar("_B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Write:
    """How to write. `dry_run`: check all, write nothing."""

    if_version: IfVersion
    dry_run: bool


async def _write(
    if_match: Annotated[str | None, Header(json_schema_extra={"pattern": _IF_MATCH})] = None,
    if_none_match: Annotated[str | None, Header(json_schema_extra={"pattern": r"^\*$"})] = None,
    dry_run: Annotated[bool, Query(alias="dryRun")] = False,
) -> Write:
    return Write(if_version=_if_version(if_match, if_none_match), dry_run=dry_run)


WriteAsked = Annotated[Write, Depends(_write)]


def _if_version(if_match: str | None, if_none_match: str | None) -> IfVersion:
    if if_none_match is not None:
        if if_none_match != "*":
            raise InvalidInputError("If-None-Match takes *", path=headers.IF_NONE_MATCH)
        # Nothing is there and not there.
        return ABSENT if if_match is None else frozenset()
    if if_match is None:
        return None
    if if_match == "*":
        return ANY_VERSION
    if not _ETAGS.fullmatch(if_match):
        raise InvalidInputError("If-Match takes ETags or *", path=headers.IF_MATCH)
    own = (_OWN_ETAG.fullmatch(one) for one in _ETAG.findall(if_match))
    return frozenset(int(one[1]) for one in own if one)


def etag_of(version: int) -> str:
    """The ETag of a record's version."""
    return f'"{version}"'


def names_etag(if_none_match: str, etag: str) -> bool:
    """Whether If-None-Match names this ETag, among others or as a weak one."""
    named = (one.strip().removeprefix("W/") for one in if_none_match.split(","))
    return any(one in ("*", etag) for one in named)


def tell(outcome: Outcome, version: int, response: Response) -> None:
    """Say what a write did."""
    response.headers[headers.ETAG] = etag_of(version)
    response.headers[headers.OUTCOME] = outcome
    if outcome is Outcome.CREATED:
        response.status_code = HTTPStatus.CREATED


def merged(current: BaseModel, patch: Mapping[str, Any], body: type[_B]) -> _B:
    """What a merge patch makes of an object, as the body that would have put it."""
    for name in patch:
        if name not in body.model_fields and name not in rest.READ_ONLY:
            raise InvalidInputError(f"there is no field {name[:PATH_MAX]!r}", path=name[:PATH_MAX])
    wanted = merge(current.model_dump(mode="json"), patch)
    try:
        return body.model_validate_json(json.dumps(wanted))
    except ValidationError as error:
        raise first_of(error.errors(include_url=False)) from error
    except ValueError as error:
        # Of all JSON only an integer of thousands of digits can't be written again.
        raise InvalidInputError("a number is too long", path=BODY) from error


def merge(target: Any, patch: Any) -> Any:
    """RFC 7396: what a merge patch makes of a JSON value."""
    if not isinstance(patch, Mapping):
        return patch
    merged_ = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged_.pop(name, None)
        else:
            merged_[name] = merge(merged_.get(name), value)
    return merged_
