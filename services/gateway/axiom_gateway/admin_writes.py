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
from axiom_common.runtime.desired_store import ABSENT, ANY_VERSION, Outcome
from axiom_common.wire import headers
from axiom_gateway.admin_problems import first_of

_ETAG = re.compile(r'"([0-9]{1,16})"')
_B = TypeVar("_B", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Write:
    """How to write. `if_version`: only on this version of the record, None without a precondition.
    `dry_run`: check all, write nothing."""

    if_version: int | None
    dry_run: bool


def _write(
    if_match: Annotated[str | None, Header()] = None,
    if_none_match: Annotated[str | None, Header()] = None,
    dry_run: Annotated[bool, Query(alias="dryRun")] = False,
) -> Write:
    return Write(if_version=_if_version(if_match, if_none_match), dry_run=dry_run)


WriteAsked = Annotated[Write, Depends(_write)]


def _if_version(if_match: str | None, if_none_match: str | None) -> int | None:
    if if_none_match is not None:
        if if_none_match != "*" or if_match is not None:
            raise InvalidInputError("If-None-Match takes *, alone", path=headers.IF_NONE_MATCH)
        return ABSENT
    if if_match is None:
        return None
    if if_match == "*":
        return ANY_VERSION
    etag = _ETAG.fullmatch(if_match)
    if etag is None:
        raise InvalidInputError("If-Match takes one ETag or *", path=headers.IF_MATCH)
    return int(etag[1])


def etag_of(version: int) -> str:
    """The ETag of a record's version."""
    return f'"{version}"'


def tell(outcome: Outcome, version: int, response: Response) -> None:
    """Say what a write did."""
    response.headers[headers.ETAG] = etag_of(version)
    response.headers[headers.OUTCOME] = outcome
    if outcome is Outcome.CREATED:
        response.status_code = HTTPStatus.CREATED


def merged(current: BaseModel, patch: Mapping[str, Any], body: type[_B]) -> _B:
    """What a merge patch (RFC 7396) makes of an object, as the body that would have put it."""
    wanted = _merge(current.model_dump(mode="json"), patch)
    try:
        return body.model_validate_json(json.dumps(wanted))
    except ValidationError as error:
        raise first_of(error.errors(include_url=False)) from error


def _merge(target: Any, patch: Any) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    merged_ = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            merged_.pop(name, None)
        else:
            merged_[name] = _merge(merged_.get(name), value)
    return merged_
