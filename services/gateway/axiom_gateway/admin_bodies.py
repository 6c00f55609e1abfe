"""The bodies that the admin API takes: bounded in size and time, JSON of one shape."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from fastapi import Request
from pydantic import BaseModel, ValidationError
from starlette.requests import ClientDisconnect

from axiom_common.errors import InvalidInputError
from axiom_common.wire import rest
from axiom_gateway.admin_problems import TooLargeError, TooSlowError, first_of

BODY_TIMEOUT_S = 10.0
_S = TypeVar("_S", bound=BaseModel)


def body_of(shape: type[_S]) -> Callable[[Request], Awaitable[_S]]:
    """A dependency that reads the body as JSON of this shape, whatever its content type says."""

    async def read(request: Request) -> _S:
        body = bytearray()
        try:
            async with asyncio.timeout(BODY_TIMEOUT_S):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > rest.BODY_BYTES_MAX:
                        raise TooLargeError(f"the body is above {rest.BODY_BYTES_MAX} bytes")
        except TimeoutError as error:
            raise TooSlowError(f"no whole body within {BODY_TIMEOUT_S:g} s") from error
        except ClientDisconnect as error:
            raise InvalidInputError("the body ends too early") from error
        try:
            return shape.model_validate_json(bytes(body))
        except ValidationError as error:
            raise first_of(error.errors(include_url=False)) from error

    return read


def takes(shape: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI part that `body_of` hides from FastAPI."""
    schema = shape.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
