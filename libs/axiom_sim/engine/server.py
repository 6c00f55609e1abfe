"""The HTTP surface, as plain ASGI: routes, errors, streams and the client's going away.

No framework: a stream costs one `send` a chunk here, and thousands of chunks a second must leave
most of a core to what is being tested.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from axiom_common.drivers.engine_client import HEALTH_PATH, METRICS_PATH, MODELS_PATH
from axiom_common.drivers.system_clock import unix_s
from axiom_common.drivers.vllm_engine import LOAD_PATH, UNLOAD_PATH
from axiom_common.errors import InvalidInputError
from axiom_common.wire.headers import REQUEST_ID
from axiom_sim.engine.answers import DONE, error_event, model_list
from axiom_sim.engine.asgi import (
    GoneError,
    Receive,
    Reply,
    Request,
    Scope,
    Send,
    while_connected,
)
from axiom_sim.engine.engine import Generation, SimulatedEngine
from axiom_sim.engine.faults import faults_as_json, read_faults
from axiom_sim.engine.metrics_page import CONTENT_TYPE
from axiom_sim.engine.openai_api import Question, read_chat, read_completion, read_embedding
from axiom_sim.engine.refusals import RefusedError, bad_field, internal_error

VERSION = "0.32.0"
RESIDENCY_PATH = "/agent/lora_residency"
"""What a test's own probe in a real engine tells there: its memory of adapters, as it is."""

Handler = Callable[[Request], Awaitable[Reply | None]]


class EngineServer:
    """The ASGI app of one engine."""

    def __init__(self, engine: SimulatedEngine) -> None:
        self._engine = engine
        self._routes: dict[str, dict[str, Handler]] = {
            "/v1/chat/completions": {"POST": self._chat},
            "/v1/completions": {"POST": self._complete},
            "/v1/embeddings": {"POST": self._embed},
            MODELS_PATH: {"GET": self._models},
            LOAD_PATH: {"POST": self._load},
            UNLOAD_PATH: {"POST": self._unload},
            METRICS_PATH: {"GET": self._metrics},
            HEALTH_PATH: {"GET": self._health},
            "/ping": {"GET": self._health, "POST": self._health},
            "/version": {"GET": self._version},
            "/load": {"GET": self._server_load},
            RESIDENCY_PATH: {"GET": self._residency},
            "/sim/stats": {"GET": self._stats},
            "/sim/faults": {"GET": self._faults, "POST": self._set_faults},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request = Request(scope, receive, send)
        methods = self._routes.get(scope["path"])
        try:
            if methods is None:
                reply: Reply | None = json_reply({"detail": "Not Found"}, status=404)
            elif scope["method"] not in methods:
                reply = json_reply({"detail": "Method Not Allowed"}, status=405)
            else:
                reply = await methods[scope["method"]](request)
        except RefusedError as refused:
            reply = self._refuse(refused)
        except GoneError:
            return
        if reply is not None:
            await self._answer(request, reply)

    def _refuse(self, refused: RefusedError) -> Reply:
        return json_reply(refused.as_json(), status=refused.status)

    async def _answer(self, request: Request, reply: Reply) -> None:
        headers = [(b"content-length", str(len(reply.body)).encode())]
        if reply.content_type is not None:
            headers.append((b"content-type", reply.content_type.encode()))
        await self._start(request, reply.status, headers)
        await request.send({"type": "http.response.body", "body": reply.body})

    async def _start(
        self, request: Request, status: int, headers: list[tuple[bytes, bytes]]
    ) -> None:
        if self._engine.config.request_id_headers and REQUEST_ID in request.headers:
            given = request.headers[REQUEST_ID].encode("latin-1")
            headers.append((REQUEST_ID.encode(), given))
        await request.send({"type": "http.response.start", "status": status, "headers": headers})

    async def _chat(self, request: Request) -> Reply | None:
        return await self._generate(request, read_chat)

    async def _complete(self, request: Request) -> Reply | None:
        return await self._generate(request, read_completion)

    async def _generate(
        self, request: Request, read: Callable[[dict[str, Any]], Question]
    ) -> Reply | None:
        self._engine.last_arrival_s = unix_s()
        question = read(await request.read_object())
        await self._engine.prepare(question.model)
        generation = self._engine.ask(question, request.headers.get(REQUEST_ID))
        try:
            if question.stream:
                await while_connected(request, self._stream(request, generation))
                return None
            return await while_connected(request, self._whole(generation))
        finally:
            self._engine.loop.abort(generation.sequence)

    async def _whole(self, generation: Generation) -> Reply:
        await generation.stream.next()
        if generation.stream.cut:
            raise internal_error()
        body = generation.answer.whole(
            "".join(generation.words),
            generation.sequence.ends_by,
            generation.stopped_by,
            generation.usage(len(generation.words)),
        )
        return json_reply(body)

    async def _stream(self, request: Request, generation: Generation) -> None:
        headers = [(b"content-type", b"text/event-stream; charset=utf-8")]
        await self._start(request, 200, headers)
        sent = 0
        events = [generation.answer.opening()]
        while True:
            new = await generation.stream.next()
            for index in range(sent, sent + new):
                if index == generation.breaks_after:
                    await _end(request, b"".join([*events, error_event(), DONE]))
                    return
                events.append(_event(generation, index))
            sent += new
            if generation.stream.ended:
                break
            await request.send(
                {"type": "http.response.body", "body": b"".join(events), "more_body": True}
            )
            events.clear()
        if generation.question.include_usage and not generation.stream.cut:
            events.append(generation.answer.usage_chunk(generation.usage(sent)))
        await _end(request, b"".join([*events, DONE]))

    async def _embed(self, request: Request) -> Reply:
        question = read_embedding(await request.read_object())
        body = await while_connected(request, self._engine.embed(question))
        if question.as_base64:
            for row in body["data"]:
                vector = row["embedding"]
                packed = struct.pack(f"<{len(vector)}f", *vector)
                row["embedding"] = base64.b64encode(packed).decode()
        return json_reply(body)

    async def _models(self, _: Request) -> Reply:
        names = self._engine.names
        return json_reply(
            model_list(
                base=names.base,
                max_model_len=self._engine.config.max_model_len,
                adapters=[(adapter.name, adapter.path) for adapter in names.all()],
                created_s=int(self._engine.metrics.started_unix_s),
            )
        )

    async def _load(self, request: Request) -> Reply:
        body = await request.read_object()
        name, path = text_field(body, "lora_name"), text_field(body, "lora_path")
        await self._engine.load(name, path, in_place=body.get("load_inplace") is True)
        return _plain(f"Success: LoRA adapter '{name}' added successfully.")

    async def _unload(self, request: Request) -> Reply:
        name = text_field(await request.read_object(), "lora_name")
        self._engine.names.forget(name)
        return _plain(f"Success: LoRA adapter '{name}' removed successfully.")

    async def _metrics(self, _: Request) -> Reply:
        page = self._engine.metrics.page(self._engine.batch)
        return Reply(page.encode(), content_type=CONTENT_TYPE)

    async def _health(self, _: Request) -> Reply:
        unhealthy = self._engine.loop.faults.unhealthy
        return Reply(b"", status=503 if unhealthy else 200, content_type=None)

    async def _version(self, _: Request) -> Reply:
        return json_reply({"version": VERSION})

    async def _server_load(self, _: Request) -> Reply:
        return json_reply({"server_load": self._engine.loop.in_flight})

    async def _residency(self, _: Request) -> Reply:
        told = self._engine.residency()
        return json_reply({"detail": "Not Found"}, status=404) if told is None else json_reply(told)

    async def _stats(self, _: Request) -> Reply:
        return json_reply(self._engine.stats())

    async def _faults(self, _: Request) -> Reply:
        return json_reply(faults_as_json(self._engine.loop.faults))

    async def _set_faults(self, request: Request) -> Reply:
        try:
            self._engine.loop.faults = read_faults(await request.read())
        except InvalidInputError as error:
            raise RefusedError(400, str(error), kind="Bad Request", param=error.path) from error
        return await self._faults(request)


def _event(generation: Generation, index: int) -> bytes:
    usage = generation.usage(index + 1) if generation.question.continuous_usage else None
    text = generation.words[index]
    if index + 1 < len(generation.words):
        return generation.answer.chunk(text, usage)
    return generation.answer.last_chunk(
        text, generation.sequence.ends_by, generation.stopped_by, usage
    )


async def _end(request: Request, body: bytes) -> None:
    await request.send({"type": "http.response.body", "body": body})


def text_field(body: dict[str, Any], name: str) -> str:
    """A field that must be there, and be text."""
    if name not in body:
        raise bad_field(f"body.{name}", "missing", "Field required", body)
    value = body[name]
    if not isinstance(value, str):
        raise bad_field(f"body.{name}", "string_type", "Input should be a valid string", value)
    return value


def json_reply(body: object, *, status: int = 200) -> Reply:
    """A whole answer in JSON."""
    return Reply(msgspec.json.encode(body), status=status)


def _plain(text: str) -> Reply:
    return Reply(text.encode(), content_type=None)
