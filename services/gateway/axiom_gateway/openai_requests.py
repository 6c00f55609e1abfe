"""What a client asks of /v1: a body, checked as far as a decision needs it.

The top level of the JSON object is split into its members and each value stays as the client wrote
it, so that a body of megabytes is checked and passed on without being parsed to its leaves. What
lies deeper is the engine's to judge; its own 4xx goes to the client.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec
import xxhash

from axiom_common.model.ids import EngineAdapter
from axiom_gateway.errors import ApiError, invalid

MODEL_CHARS_MAX = 256
BYTES_PER_TOKEN = 4
"""Usual for English text in today's vocabularies; used only to predict prefill time."""
AFFINITY_BYTES = 256
"""The first chunk of a prompt, as in the chunk scheme of the prefix state tree."""

STRIPPED = ("kv_transfer_params", "ec_transfer_params", "lora_path")
"""Members that no client may set: engines take them as orders about other requests' caches, and
SGLang the last one for an adapter, whoever's it is."""


class Endpoint(StrEnum):
    """The paths that lead to an engine."""

    CHAT = "/v1/chat/completions"
    COMPLETIONS = "/v1/completions"
    EMBEDDINGS = "/v1/embeddings"


class ParsedRequest(NamedTuple):
    """One request. `prompt` is its prompt as JSON text; `prompt_tokens` an estimate."""

    endpoint: Endpoint
    model: str
    stream: bool
    prompt: memoryview
    prompt_tokens: int
    members: dict[str, msgspec.Raw]

    def body_for(self, served_name: str) -> bytes:
        """The body to send to an engine that knows the model as `served_name`."""
        return _ENCODER.encode(self.members | {"model": served_name})

    def affinity_hash(self, adapter: EngineAdapter) -> int:
        """64 bits of (adapter, first chunk of the prompt)."""
        seed = xxhash.xxh3_64_intdigest(adapter.encode())
        return int(xxhash.xxh3_64_intdigest(self.prompt[:AFFINITY_BYTES], seed=seed))


_ENCODER = msgspec.json.Encoder()
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])

_OPTIONS: dict[str, msgspec.json.Decoder[Any]] = {
    "stream": msgspec.json.Decoder(bool | None),
    "stream_options": msgspec.json.Decoder(dict[str, msgspec.Raw] | None),
    "max_tokens": msgspec.json.Decoder(int | None),
    "max_completion_tokens": msgspec.json.Decoder(int | None),
    "n": msgspec.json.Decoder(int | None),
    "temperature": msgspec.json.Decoder(float | None),
    "top_p": msgspec.json.Decoder(float | None),
}
_MODEL = msgspec.json.Decoder(str)


@dataclass(frozen=True, slots=True)
class _Prompt:
    """Where an endpoint keeps its prompt, and what JSON it must begin with."""

    member: str
    begins: re.Pattern[bytes]
    expected: str


_TEXT_OR_LIST = re.compile(rb'"|\[\s*["\[{0-9-]')
_PROMPTS: dict[Endpoint, _Prompt] = {
    Endpoint.CHAT: _Prompt("messages", re.compile(rb"\[\s*\{"), "a non-empty list of messages"),
    Endpoint.COMPLETIONS: _Prompt(
        "prompt", _TEXT_OR_LIST, "a string or a non-empty list of strings or token ids"
    ),
    Endpoint.EMBEDDINGS: _Prompt(
        "input", _TEXT_OR_LIST, "a string or a non-empty list of strings or token ids"
    ),
}
_TOKEN_IDS = re.compile(rb"\[\s*(\[\s*)?[0-9-]")


def parse(endpoint: Endpoint, body: bytes) -> ParsedRequest:
    """Check a body; raises ApiError (400, with `param` where a field is to blame) and no other."""
    try:
        members = _MEMBERS.decode(body)
    except msgspec.ValidationError as error:
        raise invalid("The body must be a JSON object.") from error
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise invalid(f"The body is not valid JSON: {error}") from error
    for name in STRIPPED:
        members.pop(name, None)
    options = {name: _option(members, name) for name in _OPTIONS if name in members}
    prompt = _prompt(endpoint, members)
    return ParsedRequest(
        endpoint=endpoint,
        model=_model(members),
        stream=options.get("stream") is True and endpoint is not Endpoint.EMBEDDINGS,
        prompt=prompt,
        prompt_tokens=_estimate_tokens(prompt),
        members=members,
    )


def _option(members: dict[str, msgspec.Raw], name: str) -> Any:
    try:
        return _OPTIONS[name].decode(members[name])
    except (msgspec.MsgspecError, RecursionError, ValueError) as error:
        raise invalid(f"`{name}`: {error}", param=name) from error


def _model(members: dict[str, msgspec.Raw]) -> str:
    if "model" not in members:
        raise invalid("You must provide `model`.", param="model")
    try:
        model = _MODEL.decode(members["model"])
    except (msgspec.MsgspecError, ValueError) as error:
        raise invalid(f"`model`: {error}", param="model") from error
    if not 0 < len(model) <= MODEL_CHARS_MAX:
        raise invalid(f"`model` must have 1 to {MODEL_CHARS_MAX} characters.", param="model")
    return model


def _prompt(endpoint: Endpoint, members: dict[str, msgspec.Raw]) -> memoryview:
    rule = _PROMPTS[endpoint]
    if rule.member not in members:
        raise invalid(f"You must provide `{rule.member}`.", param=rule.member)
    prompt = memoryview(members[rule.member])
    if not rule.begins.match(prompt):
        raise invalid(f"`{rule.member}` must be {rule.expected}.", param=rule.member)
    return prompt


def _estimate_tokens(prompt: memoryview) -> int:
    if _TOKEN_IDS.match(prompt):
        return bytes(prompt).count(b",") + 1
    return len(prompt) // BYTES_PER_TOKEN


__all__ = ["STRIPPED", "ApiError", "Endpoint", "ParsedRequest", "parse"]
