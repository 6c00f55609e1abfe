"""Everything /v1 refuses, in OpenAI's shape: one place turns a reason into status and body.

| reason | status | Retry-After |
| --- | --- | --- |
| invalid_api_key | 401 | |
| keys-unknown | 503 | yes |
| unknown-model | 404 | |
| all-saturated, all-quarantined | 429 | yes |
| no-engine, shutting-down, and what an agent gives for a load | 503 | yes |
| engine-failed | 502 | yes |
| deadline-exceeded | 504 | |
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from axiom_common.errors import AxiomError
from axiom_common.model.reason import Reason

NAMES_SHOWN_MAX = 50
MESSAGE_CHARS_MAX = 2000
"""Of what an engine says."""

_STATUS: dict[Reason, int] = {
    Reason.UNKNOWN_MODEL: 404,
    Reason.ALL_SATURATED: 429,
    Reason.ALL_QUARANTINED: 429,
    Reason.ENGINE_FAILED: 502,
    Reason.DEADLINE_EXCEEDED: 504,
}
_RETRY_AFTER_S = {429: 1, 502: 1, 503: 2}
_MESSAGES: dict[Reason, str] = {
    Reason.ALL_SATURATED: "All engines of this model are busy.",
    Reason.ALL_QUARANTINED: "Every adapter slot of this model has requests in flight.",
    Reason.NO_ENGINE: "No engine can serve this model now.",
    Reason.ENGINE_FAILED: "The engine failed while it served this request.",
    Reason.SHUTTING_DOWN: "This gateway is shutting down.",
    Reason.DEADLINE_EXCEEDED: "The request took longer than it may.",
}


class ApiError(AxiomError):
    """A request that /v1 does not serve. `kind` is OpenAI's `type`; `code` is machine-readable."""

    def __init__(
        self,
        message: str,
        *,
        status: int,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | int | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.kind = kind
        self.param = param
        self.error_code = code
        self.retry_after_s = retry_after_s

    def body(self) -> bytes:
        """`{"error": {"message", "type", "param", "code"}}`."""
        return msgspec.json.encode(
            {
                "error": {
                    "message": self.message,
                    "type": self.kind,
                    "param": self.param,
                    "code": self.error_code,
                }
            }
        )

    def event(self) -> bytes:
        """The error as the last event of a stream. The empty line in front ends a cut event."""
        return b"\ndata: " + self.body() + b"\n\n"


def invalid(message: str, *, param: str | None = None) -> ApiError:
    """A request that can't be used, 400."""
    return ApiError(message, status=400, param=param, code="invalid_value" if param else None)


def too_large(bytes_max: int) -> ApiError:
    """A body above the bound, 413."""
    return ApiError(
        f"The request body is larger than {bytes_max} bytes.", status=413, code="body_too_large"
    )


def too_slow() -> ApiError:
    """A body that does not come, 408."""
    return ApiError("The request body took too long to come.", status=408, code="body_too_slow")


def invalid_key(detail: str) -> ApiError:
    """No key, or one that is none here, 401."""
    return ApiError(f"Incorrect API key: {detail}.", status=401, code="invalid_api_key")


def keys_unknown() -> ApiError:
    """Nobody can say yet whether a key is valid, 503."""
    return ApiError(
        "This gateway does not know yet which API keys there are.",
        status=503,
        kind="server_error",
        code="keys-unknown",
        retry_after_s=_RETRY_AFTER_S[503],
    )


def unknown_model(name: str, known: Sequence[str]) -> ApiError:
    """404 with the names that the caller may use (at most `NAMES_SHOWN_MAX` of them)."""
    shown = ", ".join(known[:NAMES_SHOWN_MAX]) or "none"
    rest = len(known) - NAMES_SHOWN_MAX
    more = f" and {rest} more" if rest > 0 else ""
    return ApiError(
        f"The model `{name[:256]}` does not exist. You may use: {shown}{more}.",
        status=404,
        param="model",
        code="model_not_found",
    )


def unknown_route(method: str, path: str) -> ApiError:
    """404 for a path or method that /v1 does not have."""
    return ApiError(f"Unknown request URL: {method} {path[:256]}.", status=404, code="unknown_url")


def refused(reason: Reason, detail: str = "") -> ApiError:
    """The error of a request refused for `reason`; `detail` is added to the message."""
    status = _STATUS.get(reason, 503)
    message = _MESSAGES.get(reason, _MESSAGES[Reason.NO_ENGINE])
    return ApiError(
        f"{message} {detail}".rstrip(),
        status=status,
        kind="rate_limit_error" if status == 429 else "server_error",
        code=reason.value,
        retry_after_s=_RETRY_AFTER_S.get(status),
    )


def internal() -> ApiError:
    """A defect of this gateway; the log has the cause."""
    return ApiError("Internal error of the gateway.", status=500, kind="server_error")


def from_engine(status: int, body: bytes) -> ApiError:
    """An engine's own refusal, its fields kept; what has another shape is put into this one."""
    error = _told(body)
    if error is None:
        text = _presentable(body[:MESSAGE_CHARS_MAX].decode(errors="replace"))
        message = f"The engine answered {status}: {text}".removesuffix(": ")
        return ApiError(message, status=status, kind="engine_error")
    return ApiError(
        _presentable(error.message) or f"The engine answered {status}.",
        status=status,
        kind=error.type or "engine_error",
        param=error.param,
        code=error.code,
    )


def _told(body: bytes) -> _EngineErrorFields | None:
    """The error of a body: in a member `error` (OpenAI, vLLM), or the body itself (SGLang)."""
    try:
        told = _ENGINE_ERROR.decode(body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return None
    return told.error or (told if told.message else None)


def _presentable(text: str) -> str:
    """What a client may see of an engine's words: no page of HTML, no stack trace."""
    if text.lstrip().startswith("<") or "Traceback (most recent call last)" in text:
        return ""
    return text[:MESSAGE_CHARS_MAX]


class _EngineErrorFields(msgspec.Struct):
    message: str = ""
    type: str | None = None
    param: str | None = None
    code: int | str | None = None


class _EngineErrorBody(_EngineErrorFields):
    error: _EngineErrorFields | None = None


_ENGINE_ERROR = msgspec.json.Decoder(_EngineErrorBody)
