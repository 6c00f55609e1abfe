"""Writing answers: bodies, and the chunks of a stream, as vLLM shapes them.

A chunk is put together from parts that are encoded once for each answer: thousands of them a second
must cost little.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from axiom_sim.engine.refusals import error_body, internal_error

FINGERPRINT = "vllm-0.32.0-simulated"
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one answer. `cached` None: the engine does not tell."""

    prompt: int
    completion: int
    cached: int | None

    def as_json(self) -> dict[str, Any]:
        """vLLM's usage object."""
        body: dict[str, Any] = {
            "prompt_tokens": self.prompt,
            "total_tokens": self.prompt + self.completion,
            "completion_tokens": self.completion,
        }
        if self.cached is not None:
            body["prompt_tokens_details"] = {"cached_tokens": self.cached}
        return body


class Answer:
    """One answer under construction: who asked for what, and how it looks on the wire."""

    def __init__(self, *, chat: bool, identity: str, model: str, created_s: int) -> None:
        self.chat = chat
        self.id = ("chatcmpl-" if chat else "cmpl-") + identity
        self._model = model
        self._created_s = created_s
        kind = "chat.completion.chunk" if chat else "text_completion"
        self._head = b"data: " + msgspec.json.encode(self._header(kind))[:-1]
        if chat:
            self._before = self._head + b',"choices":[{"index":0,"delta":{"content":"'
            self._after = b'"},"logprobs":null,"finish_reason":'
        else:
            self._before = self._head + b',"choices":[{"index":0,"text":"'
            self._after = b'","logprobs":null,"finish_reason":'

    def opening(self) -> bytes:
        """What comes before the first token: the role, in a chat."""
        if not self.chat:
            return b""
        return (
            self._head + b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},'
            b'"logprobs":null,"finish_reason":null}],"prompt_token_ids":null}\n\n'
        )

    def chunk(self, text: str, usage: Usage | None = None) -> bytes:
        """A token in the middle. `text` must need no escaping."""
        return self._piece(text, b'null,"token_ids":null}]', usage)

    def last_chunk(
        self, text: str, reason: str, stopped_by: str | None, usage: Usage | None = None
    ) -> bytes:
        """The last token, with the reason why it is."""
        stop = msgspec.json.encode(stopped_by)
        ending = b'"%b","stop_reason":%b,"token_ids":null}]' % (reason.encode(), stop)
        return self._piece(text, ending, usage)

    def usage_chunk(self, usage: Usage) -> bytes:
        """The closing chunk that clients ask for by `include_usage`."""
        counts = msgspec.json.encode(usage.as_json())
        return self._head + b',"choices":[],"usage":' + counts + b"}\n\n"

    def whole(self, text: str, reason: str, stopped_by: str | None, usage: Usage) -> dict[str, Any]:
        """The body of an answer that is not streamed."""
        choice: dict[str, Any] = {"index": 0}
        if self.chat:
            choice["message"] = {"role": "assistant", "content": text, "refusal": None}
        else:
            choice["text"] = text
        choice |= {"logprobs": None, "finish_reason": reason, "stop_reason": stopped_by}
        return {
            **self._header("chat.completion" if self.chat else "text_completion"),
            "choices": [choice],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": usage.as_json(),
            "kv_transfer_params": None,
        }

    def _header(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.id,
            "object": kind,
            "created": self._created_s,
            "model": self._model,
        }

    def _piece(self, text: str, ending: bytes, usage: Usage | None) -> bytes:
        counts = b""
        if usage is not None:
            counts = b',"usage":' + msgspec.json.encode(usage.as_json())
        return b"".join((self._before, text.encode(), self._after, ending, counts, b"}\n\n"))


def error_event() -> bytes:
    """The event of a stream that breaks after its 200 has gone out."""
    failed = internal_error()
    body = error_body(str(failed), kind=failed.kind, param=None, status=failed.status)
    return b"data: " + msgspec.json.encode(body) + b"\n\n"


def model_list(
    *, base: str, max_model_len: int, adapters: list[tuple[str, str]], created_s: int
) -> dict[str, Any]:
    """GET /v1/models; `adapters` as (name, path)."""
    cards = [_card(base, root=base, parent=None, max_model_len=max_model_len, created_s=created_s)]
    cards += [
        _card(name, root=path, parent=base, max_model_len=None, created_s=created_s)
        for name, path in adapters
    ]
    return {"object": "list", "data": cards}


def _card(
    name: str, *, root: str, parent: str | None, max_model_len: int | None, created_s: int
) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": created_s,
        "owned_by": "vllm",
        "root": root,
        "parent": parent,
        "max_model_len": max_model_len,
        "permission": [],
    }
