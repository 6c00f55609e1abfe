"""The extension's half in the API server: what it counts, answers, and leaves alone."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
from tests.vllm_stand_ins import Request

from axiom_vllm import agent_api
from axiom_vllm.agent_api import AgentApi, status_of
from axiom_vllm.channel import Channel
from axiom_vllm.in_flight import InFlight
from axiom_vllm.messages import Message, done, refused, unsupported
from axiom_vllm.middleware import Middleware
from axiom_vllm.settings import Settings
from axiom_vllm.teller import ServerTeller
from axiom_vllm.tracking import Event, Receive, Scope, Send, TrackedRequest, adapter_of

CHUNK = {"type": "http.response.body", "body": b"x", "more_body": True}
END = {"type": "http.response.body", "body": b""}
GONE = {"type": "http.disconnect"}


def is_base(name: str) -> bool:
    return name == "tiny"


@pytest.mark.parametrize(
    ("body", "adapter"),
    [
        (b'{"model": "a~1", "prompt": "{\\"model\\": \\"b\\"}"}', "a~1"),
        (b'  {"messages": [{"model": "b"}], "model": "tiny"}', ""),
        (b'{"prompt": "x"}', ""),
        (b'{"model": null}', ""),
        (b'{"model": 5}', None),
        (b'{"model": "a', None),
        (b'{"model": "' + b"a" * 300 + b'"}', None),
        (b'{"a":' * 100_000, None),
        (b"\x80{", ""),
        (b"--boundary", ""),
        (b"", ""),
    ],
)
def test_which_adapter_a_body_asks_for(body: bytes, adapter: str | None) -> None:
    assert adapter_of(body, is_base) == adapter


def test_counts_tell_what_changed_and_the_whole() -> None:
    called = []
    counts = InFlight(lambda: called.append(1))
    counts.start("a")
    counts.start("a")
    counts.start("")
    counts.end("a", aborted=True)
    assert len(called) == 1
    assert counts.message(whole=False)["adapters"] == {
        "": {"in_flight": 1, "started": 1, "finished": 0, "aborted": 0},
        "a": {"in_flight": 1, "started": 2, "finished": 0, "aborted": 1},
    }
    counts.end("", aborted=False)
    assert len(called) == 2
    assert counts.message(whole=True)["adapters"] == {
        "": {"in_flight": 0, "started": 0, "finished": 1, "aborted": 0},
        "a": {"in_flight": 1, "started": 0, "finished": 0, "aborted": 0},
    }
    assert list(counts.counts()["adapters"]) == ["a"]


class Exchange:
    """One request through TrackedRequest to an application of the test's."""

    def __init__(self, *events: Event) -> None:
        self.incoming = list(events)
        self.sent: list[Event] = []
        self.counts = InFlight(lambda: None)

    async def receive(self) -> Event:
        return self.incoming.pop(0)

    async def send(self, event: Event) -> None:
        self.sent.append(event)

    async def through(self, app: Any) -> dict[str, int] | None:
        tracked = TrackedRequest(self.counts, is_base)
        await tracked.run(app, {"type": "http"}, self.receive, self.send)
        return self.outcome()

    def outcome(self) -> dict[str, int] | None:
        entry: dict[str, int] | None = self.counts.message(whole=True)["adapters"].get("a")
        return entry


def body(*parts: bytes) -> list[Event]:
    last = len(parts) - 1
    return [
        {"type": "http.request", "body": part, "more_body": position < last}
        for position, part in enumerate(parts)
    ]


FINISHED = {"in_flight": 0, "started": 1, "finished": 1, "aborted": 0}
ABORTED = {"in_flight": 0, "started": 1, "finished": 0, "aborted": 1}


async def test_a_request_passes_as_it_came_and_counts_while_it_runs() -> None:
    exchange = Exchange(*body(b'{"mod', b'el": "a"}'), GONE)
    seen: list[Any] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([await receive(), await receive(), exchange.counts.of("a")])
        await send(CHUNK)
        await send(END)
        seen.append((await receive())["type"])

    assert await exchange.through(app) == FINISHED
    assert seen == [*body(b'{"mod', b'el": "a"}'), 1, "http.disconnect"]
    assert exchange.sent == [CHUNK, END]


async def test_a_client_that_hangs_up_aborts_even_if_the_answer_is_finished() -> None:
    exchange = Exchange(*body(b'{"model": "a"}'), GONE)

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send(CHUNK)
        await receive()
        await send(END)

    assert await exchange.through(app) == ABORTED


async def test_an_answer_that_breaks_off_is_an_abort() -> None:
    exchange = Exchange(*body(b'{"model": "a"}'))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(CHUNK)

    assert await exchange.through(app) == ABORTED


@pytest.mark.parametrize("problem", [OSError("gone"), asyncio.CancelledError()])
async def test_errors_pass_and_end_the_count(problem: BaseException) -> None:
    exchange = Exchange(*body(b'{"model": "a"}'))

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise problem

    with pytest.raises(type(problem)):
        await exchange.through(app)
    assert exchange.outcome() == ABORTED


async def test_a_request_that_never_came_whole_does_not_count() -> None:
    exchange = Exchange({"type": "http.request", "body": b"{", "more_body": True}, GONE)
    seen = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.extend([await receive(), await receive()])

    assert await exchange.through(app) is None
    assert seen[1] == GONE


class Models:
    """OpenAIServingModels."""

    def __init__(self) -> None:
        self.lora_requests = {"a": Request("a", 1, "/a")}
        self.lora_resolver_lock: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self.lora_id_counter = SimpleNamespace(inc=lambda by: 2)
        self.is_base_model = is_base


class Client:
    """The engine client; `answers` are those of its workers, by method."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.attached: list[Message] = [{"kind": "residency"}, {"kind": "residency"}]
        self.outcomes: list[Message] = [done(changed=True), done(changed=True)]
        self.delay_s = 0.0
        self.problem = ""

    async def collective_rpc(
        self, method: str, timeout: float, args: tuple[Any, ...]
    ) -> list[Message]:
        self.calls.append((method, *args))
        await asyncio.sleep(self.delay_s)
        if self.problem:
            raise RuntimeError(self.problem)
        return self.attached if method == "axiom_attach" else self.outcomes


class Server:
    """An API server with the extension in it. What it tells lands in `told`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
        self.told: list[Message] = []
        self.client = Client()
        self.state = SimpleNamespace(engine_client=self.client, openai_serving_models=Models())
        self.api = AgentApi(Settings(**{"socket_path": "/agent.sock", **settings}))
        monkeypatch.setattr(agent_api, "UnixDatagrams", lambda path: self._take)
        monkeypatch.setattr(agent_api, "installed_version", lambda: "0.32.0")
        monkeypatch.setattr(agent_api, "lora_request", lambda n, name, path: Request(name, n, path))

    def _take(self, datagram: bytes) -> None:
        self.told.append(json.loads(datagram))

    async def ask(self, method: str, call: str, token: str = "", **arguments: Any) -> Message:
        body = json.dumps(arguments).encode()
        return await self.api.answer(self.state, method, f"/axiom/v1/{call}", token, body)

    async def reason(self, call: str, **arguments: Any) -> str:
        return str((await self.ask("POST", call, **arguments))["reason"])


async def test_it_attaches_tells_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    await server.api.attach(server.state)
    assert server.client.calls == [("axiom_attach", {"1": "a"})]
    assert [message["kind"] for message in server.told] == ["requests", "names"]
    assert server.told[1]["registered"] == {"a": {"id": 1, "path": "/a"}}
    state = await server.ask("GET", "state")
    assert state["supported"] is True
    assert state["residency"] == {"kind": "residency"}
    assert state["requests"]["seq"] == server.told[-1]["seq"]
    assert server.api.teller is not None
    server.api.teller.stop()


async def test_where_a_worker_is_off_so_is_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    server.client.attached[1] = unsupported("no-lora", "start")
    await server.api.attach(server.state)
    assert server.api.teller is None
    assert await server.ask("GET", "state") == unsupported("no-lora", "start")
    assert await server.reason("pin", name="a") == "failed"


async def test_missing_parts_and_dead_engines_turn_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    del server.state.openai_serving_models.lora_id_counter
    answer = await server.ask("GET", "state")
    assert answer == unsupported("unknown-internals", "openai_serving_models.lora_id_counter")
    server = Server(monkeypatch)
    server.client.problem = "the engine is dead"
    answer = await server.ask("GET", "state")
    assert answer["reason"] == "engine-unavailable"
    server.client.problem = ""
    assert (await server.ask("GET", "state"))["supported"] is True


async def test_off_for_good_is_said_once_and_not_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = Server(monkeypatch)
    server.client.problem = "Call failed: Method 'axiom_attach' is not implemented."
    await server.api.attach(server.state)
    for _ in range(3):
        assert (await server.ask("GET", "state"))["reason"] == "no-worker-extension"
    assert len(server.client.calls) == 1
    assert len(caplog.records) == 1


async def test_a_worker_that_failed_ends_the_server_half(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    await server.api.attach(server.state)
    server.client.attached = [unsupported("failed", "why")]
    assert (await server.ask("GET", "state"))["reason"] == "failed"
    assert server.api.teller is None


async def test_a_token_is_wanted_when_one_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch, token="secret")
    answer = await server.ask("GET", "state")
    assert (answer["reason"], status_of(answer)) == ("unauthorized", 401)
    assert (await server.ask("GET", "state", "Bearer wrong"))["reason"] == "unauthorized"
    assert (await server.ask("GET", "state", "Bearer secret"))["supported"] is True


async def test_calls_are_checked_before_they_reach_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch)
    await server.api.attach(server.state)
    server.client.calls.clear()
    assert await server.reason("nothing") == "not-found"
    assert await server.reason("pin") == "bad-request"
    assert await server.reason("pin", id=True) == "bad-request"
    assert await server.reason("pin", name="b") == "unknown-name"
    assert await server.reason("pin", name=["b"]) == "bad-request"
    assert await server.reason("load_to_host", name=3) == "bad-request"
    assert await server.reason("load_to_host", name="b") == "unknown-name"
    assert await server.reason("load_to_host", name="a", path="/b") == "name-taken"
    assert await server.reason("load_to_host", name="tiny", path="/b") == "name-taken"
    assert server.api.teller is not None
    server.api.teller.in_flight.start("a")
    assert await server.reason("free_slot", name="a") == "in-use"
    assert await server.reason("drop", id=1) == "in-use"
    assert server.client.calls == []
    assert (await server.ask("POST", "pin", name="a"))["done"]
    assert (await server.ask("POST", "drop", id=7))["done"]
    assert server.client.calls == [
        ("axiom_control", "pin", [1]),
        ("axiom_control", "drop", [7]),
    ]


async def test_a_new_name_is_registered_once_all_workers_hold_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server = Server(monkeypatch)
    await server.api.attach(server.state)
    server.client.calls.clear()
    models = server.state.openai_serving_models
    server.client.outcomes = [done(changed=True), refused("load-failed", "disk")]
    assert await server.reason("load_to_host", name="b", path="/b") == "load-failed"
    assert "b" not in models.lora_requests
    assert [call[1] for call in server.client.calls] == ["load_to_host", "drop"]
    server.client.outcomes = [done(changed=True), done(changed=True)]
    assert (await server.ask("POST", "load_to_host", name="b", path="/b"))["changed"] is True
    assert models.lora_requests["b"] == Request("b", 2, "/b")
    assert server.told[-1]["registered"]["b"] == {"id": 2, "path": "/b"}


async def test_an_engine_that_does_not_answer_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(monkeypatch)
    await server.api.attach(server.state)
    monkeypatch.setattr(agent_api, "CALL_TIMEOUT_S", 0.01)
    server.client.delay_s = 30.0
    answer = await server.ask("POST", "pin", name="a")
    assert (answer["reason"], status_of(answer)) == ("engine-timeout", 504)


async def test_lost_messages_are_made_good(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Message] = []
    away = [True]

    def transmit(datagram: bytes) -> None:
        if away[0]:
            raise FileNotFoundError(2, "no agent")
        taken.append(json.loads(datagram))

    teller = ServerTeller(Channel(transmit), Models())
    teller.beat()
    teller.in_flight.start("a")
    away[0] = False
    teller.beat()
    assert [(m["kind"], m["whole"]) for m in taken] == [("requests", True), ("names", True)]
    teller.beat()
    assert [m["kind"] for m in taken[2:]] == ["requests"]
    teller.stop()


class TestMiddleware:
    async def test_off_it_answers_so_and_touches_nothing(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("AXIOM_AGENT_SOCKET", raising=False)
        passed: list[Any] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            passed.append((scope["path"], receive, send))

        middleware = Middleware(app)
        exchange = Exchange(*body(b"{}"))
        scope = {"type": "http", "method": "POST", "path": "/v1/completions"}
        await middleware(scope, exchange.receive, exchange.send)
        assert passed == [("/v1/completions", exchange.receive, exchange.send)]
        asked = {
            "type": "http",
            "method": "GET",
            "path": "/axiom/v1/state",
            "headers": [],
            "app": SimpleNamespace(state=SimpleNamespace()),
        }
        await middleware(asked, exchange.receive, exchange.send)
        assert exchange.sent[0]["status"] == 200
        assert json.loads(exchange.sent[1]["body"])["reason"] == "not-enabled"
        too_large = Exchange(*body(b"x" * 70_000))
        await middleware(asked, too_large.receive, too_large.send)
        assert too_large.sent[0]["status"] == 400
