"""Writes that are sent again: with one idempotency key a write is done once, and answered alike.

It stands between the check of the key and the routes, for those whose role lets them write there.
A record in the registry is made before the write and has the answer after it, so that it holds for
all gateways of a region. The record of a write under way is a lease: a gateway that dies with it
lets go of it. Only good answers are kept; what was refused may be tried again with the same key.

Where the answer can't be kept the write is durable all the same, and its answer a good one. Sent
again it then is a new write on what it did itself: an equal PUT changes nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Match

from axiom_common.errors import AxiomError, ConflictError, InvalidInputError, UnavailableError
from axiom_common.model.access import Role
from axiom_common.ports.registry import Bucket
from axiom_common.wire import headers
from axiom_common.wire.requests import BODY_BYTES_MAX, KeptAnswer, RequestRecord, decode, encode
from axiom_gateway.admin_access import caller, role_of
from axiom_gateway.admin_bodies import bytes_of
from axiom_gateway.admin_problems import AdminError, problem_of
from axiom_gateway.asgi import App, Message, Receive, Scope, Send

LEASE_MS = 15_000.0
"""How long a write may be under way before it counts as dead."""
KEPT_MS = 3_600_000.0
TRIES_MAX = 3
"""Looks at a record that comes and goes."""
KEY_PATTERN = r"^[\x21-\x7e]{1,255}$"
_KEY = re.compile(KEY_PATTERN)
_WRITES = ("PUT", "PATCH", "DELETE", "POST")
_SECRET = "secret"
_KEPT_HEADERS = (headers.CONTENT_TYPE, headers.ETAG, headers.OUTCOME, headers.WITHOUT)


class RequestUnderWayError(AdminError):
    """The first write with this key is not answered yet."""

    code = "request-under-way"
    status = HTTPStatus.CONFLICT


class KeyReusedError(AdminError):
    """The key came with another write before."""

    code = "idempotency-key-reused"
    status = HTTPStatus.UNPROCESSABLE_ENTITY


class Idempotent:
    """Middleware before the `routes` of `app`: does a write with an idempotency key once."""

    def __init__(self, app: App, *, routes: Sequence[BaseRoute], bucket: Bucket) -> None:
        self._app = app
        self._routes = routes
        self._bucket = bucket

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        keys = _keys_in(scope) if _may_write(self._routes, scope) else []
        if not keys:
            await self._app(scope, receive, send)
            return
        try:
            request = Request(scope, receive)
            key = _checked(keys)
            body = await bytes_of(request)
            await _Once(self._app, self._bucket, request, key, body).run(send)
        except AxiomError as error:
            await problem_of(error, scope)(scope, receive, send)


class _Once:
    """One write with its key."""

    def __init__(self, app: App, bucket: Bucket, request: Request, key: str, body: bytes) -> None:
        self._app = app
        self._bucket = bucket
        self._request = request
        self._body = body
        # Whoever has the secret is who asks: a key of the same name may be another's by now.
        self._record_key = _digest([caller(request).digest.encode(), key.encode()])
        self._asked = _asked(request, body)

    async def run(self, send: Send) -> None:
        """Do it, or say how it was answered."""
        kept, revision = await self._begin()
        if kept is not None:
            await _replay(kept, send)
            return
        try:
            told = await self._answer()
        except Exception:
            await self._end(None, revision)
            raise
        await self._end(_kept_of(told), revision)
        for message in told:
            await send(message)

    async def _begin(self) -> tuple[KeptAnswer | None, int]:
        """The answer that was given before; or none, and the revision of a lease."""
        lease = encode(RequestRecord(asked=self._asked))
        for _ in range(TRIES_MAX):
            with contextlib.suppress(ConflictError):
                return None, await self._bucket.create(self._record_key, lease, ttl_ms=LEASE_MS)
            entry = await self._bucket.get(self._record_key)
            if entry is None or entry.value is None:
                continue
            record = decode(entry.value)
            if record.asked != self._asked:
                raise KeyReusedError(
                    "this idempotency key came with another request before",
                    path=headers.IDEMPOTENCY_KEY,
                )
            if record.answer is not None:
                return record.answer, entry.revision
            break
        raise RequestUnderWayError(
            "the first request with this idempotency key is under way", path=headers.IDEMPOTENCY_KEY
        )

    async def _answer(self) -> list[Message]:
        """What the app answers."""
        told: list[Message] = []
        body = self._body
        read = False

        async def receive() -> Message:
            nonlocal read
            if read:
                return await self._request.receive()
            read = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            told.append(message)

        await self._app(self._request.scope, receive, send)
        return told

    async def _end(self, kept: KeptAnswer | None, revision: int) -> None:
        """Keep a good answer, and let go of the lease where there is none. When that fails the
        lease ends by itself."""
        with contextlib.suppress(ConflictError, UnavailableError):
            if kept is None:
                await self._bucket.delete(self._record_key, revision=revision)
                return
            record = encode(RequestRecord(asked=self._asked, answer=kept))
            await self._bucket.update(self._record_key, record, revision=revision, ttl_ms=KEPT_MS)


def remembers(role: Role, method: str) -> bool:
    """Whether a route is one of those whose answers are kept: who may only look fills no store."""
    return method in _WRITES and role.grants(Role.OPERATOR)


def _may_write(routes: Sequence[BaseRoute], scope: Scope) -> bool:
    """Whether a route takes this request that writes, and the caller's role is enough for it."""
    if scope["type"] != "http":
        return False
    for route in routes:
        if isinstance(route, APIRoute) and route.matches(scope)[0] is Match.FULL:
            role = role_of(route)
            assert role is not None
            return remembers(role, scope["method"]) and caller(Request(scope)).role.grants(role)
    return False


def _keys_in(scope: Scope) -> list[str]:
    return Request(scope).headers.getlist(headers.IDEMPOTENCY_KEY)


def _checked(keys: list[str]) -> str:
    if len(keys) != 1 or not _KEY.fullmatch(keys[0]):
        raise InvalidInputError(
            "an idempotency key is one header of 1 to 255 visible ASCII characters",
            path=headers.IDEMPOTENCY_KEY,
        )
    return keys[0]


def _asked(request: Request, body: bytes) -> str:
    """What stands for all that a request asks for."""
    conditions = [
        request.headers.get(name, "") for name in (headers.IF_MATCH, headers.IF_NONE_MATCH)
    ]
    said = [request.method, request.url.path, request.url.query, *conditions]
    return _digest([*(part.encode("utf-8", "surrogateescape") for part in said), body])


def _digest(parts: Iterable[bytes]) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.hexdigest()


def _kept_of(told: list[Message]) -> KeptAnswer | None:
    """What is kept of an answer; None of one that is not good, or too long."""
    status = int(told[0]["status"])
    body = b"".join(message.get("body", b"") for message in told[1:])
    if status // 100 != 2 or len(body) > BODY_BYTES_MAX:
        return None
    given = {name.decode("latin-1"): value.decode("latin-1") for name, value in told[0]["headers"]}
    return KeptAnswer(
        status=status,
        headers={name: given[name] for name in _KEPT_HEADERS if name in given},
        body=_without_secret(body),
    )


def _without_secret(body: bytes) -> str:
    """A JSON answer without the secret in it: the registry is no place for one."""
    if not body:
        return ""
    told: dict[str, Any] = json.loads(body)
    told.pop(_SECRET, None)
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False)


async def _replay(kept: KeptAnswer, send: Send) -> None:
    body = kept.body.encode()
    given = kept.headers | {headers.REPLAYED: "true", "content-length": str(len(body))}
    if kept.status == HTTPStatus.NO_CONTENT:
        del given["content-length"]
    sent = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()]
    await send({"type": "http.response.start", "status": kept.status, "headers": sent})
    await send({"type": "http.response.body", "body": body})
