"""What the node agent can ask over HTTP: the whole state, and calls that move adapters.

Every answer is JSON. A call answers `done` or a refusal with a reason of a closed set; the HTTP
status says the same.
"""

from __future__ import annotations

import asyncio
import hmac
import json
from collections.abc import Mapping
from typing import Any

from axiom_vllm.channel import Channel, UnixDatagrams
from axiom_vllm.known import installed_version, lora_request, server_problem
from axiom_vllm.messages import (
    BAD_REQUEST,
    ENGINE_TIMEOUT,
    ENGINE_UNAVAILABLE,
    FAILED,
    FORM,
    IN_USE,
    LOAD_FAILED,
    NAME_TAKEN,
    NO_ROOM,
    NO_WORKER_EXTENSION,
    NOT_ENABLED,
    NOT_FOUND,
    NOT_HELD,
    PINNED,
    UNAUTHORIZED,
    UNKNOWN_NAME,
    Message,
    refused,
    unsupported,
)
from axiom_vllm.settings import Settings
from axiom_vllm.teller import ServerTeller
from axiom_vllm.watch import LOG

PREFIX = "/axiom/v1/"
STATE = "state"
LOAD_TO_HOST = "load_to_host"
CALLS = frozenset({"free_slot", "drop", "pin", "unpin"})
MOVING = frozenset({"free_slot", "drop"})
"""Calls that take something away from an adapter, refused while it has requests."""
PASSING = frozenset({ENGINE_TIMEOUT, ENGINE_UNAVAILABLE})
"""Reasons to be off that may be gone at the next question."""
CALL_TIMEOUT_S = 10.0
LOAD_TIMEOUT_S = 60.0
STATUS = {
    BAD_REQUEST: 400,
    UNAUTHORIZED: 401,
    NOT_FOUND: 404,
    UNKNOWN_NAME: 404,
    IN_USE: 409,
    PINNED: 409,
    NO_ROOM: 409,
    NOT_HELD: 409,
    NAME_TAKEN: 409,
    LOAD_FAILED: 422,
    FAILED: 501,
    NO_WORKER_EXTENSION: 501,
    ENGINE_UNAVAILABLE: 503,
    ENGINE_TIMEOUT: 504,
}


class _RefusedError(Exception):
    """Carries a refusal to the answer."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.message = refused(reason, detail)


class AgentApi:
    """Of one API server process. `teller` is there while the extension works."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._off = unsupported(ENGINE_UNAVAILABLE if settings.socket_path else NOT_ENABLED)
        self._logged = ""
        self.teller: ServerTeller | None = None

    async def attach(self, state: Any) -> None:
        """Begin in worker and server, if the extension is enabled and knows this vLLM."""
        if not self._settings.socket_path:
            return
        problem = server_problem(state)
        if problem is not None:
            self._stay_off(unsupported(*problem))
            return
        try:
            await self._attach_workers(state)
        except _RefusedError as error:
            self._stay_off(unsupported(error.message["reason"], error.message["detail"]))
            return
        if self.teller is None:
            channel = Channel(UnixDatagrams(self._settings.socket_path))
            self.teller = ServerTeller(channel, state.openai_serving_models)
            self.teller.beat()

    async def answer(self, state: Any, method: str, path: str, token: str, body: bytes) -> Message:
        """The answer to one request under PREFIX."""
        name = path.removeprefix(PREFIX)
        try:
            if self._settings.token and not hmac.compare_digest(
                token.encode(), f"Bearer {self._settings.token}".encode()
            ):
                raise _RefusedError(UNAUTHORIZED)
            if (method, name) == ("GET", STATE):
                return await self._state(state)
            if method != "POST" or name not in CALLS | {LOAD_TO_HOST}:
                raise _RefusedError(NOT_FOUND)
            if self.teller is None:
                raise _RefusedError(FAILED, f"the extension is off: {self._off['reason']}")
            return await self._control(state, name, _arguments(body))
        except _RefusedError as error:
            return error.message

    async def _state(self, state: Any) -> Message:
        if self.teller is None and self._off["reason"] in PASSING:
            await self.attach(state)
        if self.teller is None:
            return self._off
        residency = await self._call(state, "axiom_attach", [_names(state)], CALL_TIMEOUT_S)
        lost = next((word for word in residency if "kind" not in word), None)
        if lost is not None:
            self.teller.stop()
            self.teller, self._off = None, lost
            return lost
        return {
            "v": FORM,
            "supported": True,
            "version": installed_version(),
            # All workers of an engine hold the same.
            "residency": residency[0],
            "requests": self.teller.requests(),
            "names": self.teller.names(),
        }

    async def _control(self, state: Any, call: str, arguments: dict[str, Any]) -> Message:
        if call == LOAD_TO_HOST:
            name = arguments.get("name")
            if not isinstance(name, str) or not name:
                raise _RefusedError(BAD_REQUEST, "name")
            return await self._load_to_host(state, name, arguments.get("path"))
        number = _number(arguments, state.openai_serving_models.lora_requests)
        # Requests that still wait in the scheduler are known here only.
        if call in MOVING and self._in_flight(state, number):
            raise _RefusedError(IN_USE)
        return await self._on_workers(state, call, [number], CALL_TIMEOUT_S)

    def _in_flight(self, state: Any, number: int) -> bool:
        return self.teller is not None and any(
            self.teller.in_flight.of(request.lora_name)
            for request in state.openai_serving_models.lora_requests.values()
            if request.lora_int_id == number
        )

    async def _load_to_host(self, state: Any, name: str, path: Any) -> Message:
        """A name that the server does not answer to yet needs a `path`, and is registered."""
        models = state.openai_serving_models
        known = models.lora_requests.get(name)
        if known is None and (not isinstance(path, str) or not path):
            raise _RefusedError(UNKNOWN_NAME)
        if known is not None and path not in (None, known.lora_path):
            raise _RefusedError(NAME_TAKEN, known.lora_path)
        if models.is_base_model(name):
            raise _RefusedError(NAME_TAKEN, "a base model")
        if known is not None:
            arguments = [known.lora_int_id, name, known.lora_path]
            return await self._on_workers(state, LOAD_TO_HOST, arguments, LOAD_TIMEOUT_S)
        async with models.lora_resolver_lock[name]:
            if name in models.lora_requests:
                raise _RefusedError(NAME_TAKEN, "loaded by somebody else just now")
            number = models.lora_id_counter.inc(1)
            arguments = [number, name, path]
            outcome = await self._on_workers(state, LOAD_TO_HOST, arguments, LOAD_TIMEOUT_S)
            if outcome["done"]:
                models.lora_requests[name] = lora_request(number, name, path)
        if self.teller is not None:
            self.teller.names_changed()
        return outcome

    async def _on_workers(
        self, state: Any, call: str, arguments: list[Any], timeout_s: float
    ) -> Message:
        """All workers' outcome: done when all are. A load that only some could do is undone."""
        outcomes = await self._call(state, "axiom_control", [call, arguments], timeout_s)
        refusal = next((outcome for outcome in outcomes if not outcome["done"]), None)
        if refusal is None:
            return next((o for o in outcomes if o["changed"]), outcomes[0])
        if call == LOAD_TO_HOST and any(outcome["done"] for outcome in outcomes):
            await self._call(state, "axiom_control", ["drop", arguments[:1]], timeout_s)
        return refusal

    async def _attach_workers(self, state: Any) -> None:
        answers = await self._call(state, "axiom_attach", [_names(state)], CALL_TIMEOUT_S)
        off = next((answer for answer in answers if "kind" not in answer), None)
        if off is not None:
            raise _RefusedError(off["reason"], off["detail"])

    async def _call(
        self, state: Any, method: str, arguments: list[Any], timeout_s: float
    ) -> list[Message]:
        """Run a method of the worker extension in every worker, between two steps."""
        call = state.engine_client.collective_rpc(method, timeout=timeout_s, args=tuple(arguments))
        try:
            answers: list[Message] = await asyncio.wait_for(call, timeout_s)
        except TimeoutError:
            raise _RefusedError(ENGINE_TIMEOUT) from None
        except Exception as error:
            missing = f"Method {method!r} is not implemented" in str(error)
            reason = NO_WORKER_EXTENSION if missing else ENGINE_UNAVAILABLE
            raise _RefusedError(reason, str(error)) from error
        return answers

    def _stay_off(self, why: Message) -> None:
        if why["reason"] != self._logged:
            LOG.warning("axiom: the extension is off (%s: %s)", why["reason"], why["detail"])
        self._off, self._logged = why, why["reason"]


def status_of(answer: Message) -> int:
    """The HTTP status that goes with an answer."""
    return 200 if answer.get("done", True) else STATUS[answer["reason"]]


def _names(state: Any) -> dict[str, str]:
    requests = state.openai_serving_models.lora_requests.values()
    return {str(request.lora_int_id): request.lora_name for request in requests}


def _number(arguments: dict[str, Any], requests: Mapping[str, Any]) -> int:
    """The adapter that `name` or `id` means. A copy without a name has its number only."""
    name, number = arguments.get("name"), arguments.get("id")
    if isinstance(name, str):
        if name not in requests:
            raise _RefusedError(UNKNOWN_NAME)
        number = requests[name].lora_int_id
    if not isinstance(number, int) or isinstance(number, bool):
        raise _RefusedError(BAD_REQUEST, "name or id")
    return number


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        arguments = json.loads(body)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise _RefusedError(BAD_REQUEST, "a JSON object")
    return arguments
