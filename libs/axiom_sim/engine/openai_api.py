"""Reading requests: from a body to a `Question`, or to the refusal that vLLM would give."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from axiom_sim.engine.refusals import RefusedError, bad_field, bad_value

_COMPLETION_TOKENS_DEFAULT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """An inference request. `model` None: the base model. `prompt_tokens` None: count the text.

    `tokens_max` None: until the model ends or its context is full.
    """

    chat: bool
    model: str | None
    prompt: bytes
    prompt_tokens: int | None = None
    tokens_max: int | None = None
    tokens_min: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    request_id: str | None = None
    cache_salt: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddingQuestion:
    """A request for one vector an input."""

    model: str | None
    inputs: tuple[bytes, ...]
    dimensions: int | None
    as_base64: bool


def read_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The JSON object of a request."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise RefusedError(
            400,
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed",
            kind="Bad Request",
        )
    if not body:
        raise bad_field("body", "missing", "Field required", None)
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        detail = (
            f"{{'type': 'json_invalid', 'loc': 'body.{error.pos}', 'msg': 'JSON decode error', "
            f"'input': '<dict of 0 items>', 'ctx': {{'error': '{error.msg}'}}}}"
        )
        raise RefusedError(
            400,
            f"1 validation error:\n  {detail}",
            kind="Bad Request",
            param=f"body.{error.pos}",
        ) from error
    except UnicodeDecodeError as error:
        raise RefusedError(
            400, "There was an error parsing the body", kind="Bad Request"
        ) from error
    if not isinstance(value, dict):
        message = "Input should be a valid dictionary or object to extract fields from"
        raise bad_field("body", "model_attributes_type", message, value)
    return value


def read_chat(body: dict[str, Any]) -> Question:
    """A body of /v1/chat/completions."""
    if "messages" not in body:
        raise bad_field("body.messages", "missing", "Field required", body)
    messages = body["messages"]
    if not isinstance(messages, list):
        raise bad_field("body.messages", "list_type", "Input should be a valid list", messages)
    text = "".join(_render(message, index) for index, message in enumerate(messages))
    tokens_max = read_int(body, "max_completion_tokens")
    if tokens_max is None:
        tokens_max = read_int(body, "max_tokens")
    question = _read_common(body, chat=True, prompt=text.encode(), tokens_max=tokens_max)
    if not messages:
        raise RefusedError(
            400,
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
            kind="BadRequestError",
        )
    return question


def read_completion(body: dict[str, Any]) -> Question:
    """A body of /v1/completions: one prompt, as text or as token ids."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if prompt is None or prompt in ("", []):
        raise bad_value("prompt", "Either prompt or prompt_embeds must be provided and non-empty.")
    tokens_max = read_int(body, "max_tokens")
    if tokens_max is None:
        tokens_max = _COMPLETION_TOKENS_DEFAULT
    data, count = _prompt_bytes(prompt)
    return _read_common(body, chat=False, prompt=data, prompt_tokens=count, tokens_max=tokens_max)


def read_embedding(body: dict[str, Any]) -> EmbeddingQuestion:
    """A body of /v1/embeddings."""
    if "input" not in body:
        raise bad_field("body.input", "missing", "Field required", body)
    given = body["input"]
    inputs = given if isinstance(given, list) and given and not _is_ids(given) else [given]
    encoding = body.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise bad_field(
            "body.encoding_format",
            "literal_error",
            "Input should be 'float', 'base64' or 'bytes'",
            encoding,
        )
    return EmbeddingQuestion(
        model=_read_str(body, "model"),
        inputs=tuple(_prompt_bytes(one, field="input")[0] for one in inputs),
        dimensions=read_int(body, "dimensions"),
        as_base64=encoding == "base64",
    )


def read_int(body: dict[str, Any], name: str) -> int | None:
    """An integer, as leniently as vLLM takes it."""
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return None if value is None else int(value)
    path = f"body.{name}"
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        if not value.is_integer():
            message = "Input should be a valid integer, got a number with a fractional part"
            raise bad_field(path, "int_from_float", message, value)
        return int(value)
    if isinstance(value, str) and value.strip().lstrip("+-").isdigit():
        return int(value)
    if isinstance(value, str):
        message = "Input should be a valid integer, unable to parse string as an integer"
        raise bad_field(path, "int_parsing", message, value)
    raise bad_field(path, "int_type", "Input should be a valid integer", value)


def _read_common(
    body: dict[str, Any],
    *,
    chat: bool,
    prompt: bytes,
    tokens_max: int | None,
    prompt_tokens: int | None = None,
) -> Question:
    stream = _read_bool(body, "stream")
    options = body.get("stream_options")
    if options is not None and not stream:
        raise bad_value("stream_options", "Stream options can only be defined when `stream=True`.")
    if options is not None and not isinstance(options, dict):
        raise bad_field("body.stream_options", "model_type", "Input should be an object", options)
    options = options or {}
    model = _read_str(body, "model")
    if tokens_max is not None and tokens_max < 1:
        raise bad_value(
            "max_tokens", f"max_tokens must be at least 1, got {tokens_max}.", tokens_max
        )
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        message = f"temperature must be non-negative, got {float(temperature)}."
        raise bad_value("temperature", message, float(temperature))
    if read_int(body, "n") not in (None, 1):
        raise bad_value("n", "The simulated engine gives one choice.", body["n"])
    return Question(
        chat=chat,
        model=model or None,
        prompt=prompt,
        prompt_tokens=prompt_tokens,
        tokens_max=tokens_max,
        tokens_min=read_int(body, "min_tokens") or 0,
        ignore_eos=_read_bool(body, "ignore_eos"),
        stop=_read_stop(body.get("stop")),
        stream=stream,
        include_usage=_read_bool(options, "include_usage"),
        continuous_usage=_read_bool(options, "continuous_usage_stats"),
        request_id=_read_str(body, "request_id"),
        cache_salt=_read_str(body, "cache_salt") or "",
    )


def _render(message: Any, index: int) -> str:
    path = f"body.messages.{index}"
    if not isinstance(message, dict):
        raise bad_field(path, "dict_type", "Input should be a valid dictionary", message)
    if not isinstance(message.get("role"), str):
        raise bad_field(f"{path}.role", "missing", "Field required", message)
    content = message.get("content")
    if isinstance(content, list):
        parts = [part for part in content if isinstance(part, dict)]
        content = "".join(str(part.get("text", "")) for part in parts)
    elif content is not None and not isinstance(content, str):
        raise bad_field(f"{path}.content", "string_type", "Input should be a valid string", content)
    return f"<|{message['role']}|>{content or ''}<|end|>"


def _prompt_bytes(prompt: Any, field: str = "prompt") -> tuple[bytes, int | None]:
    if isinstance(prompt, str):
        return prompt.encode(), None
    if _is_ids(prompt):
        return b"".join(token.to_bytes(4, "little") for token in prompt), len(prompt)
    if isinstance(prompt, list):
        raise bad_value(field, "The simulated engine takes one prompt a request.")
    raise bad_field(f"body.{field}", "string_type", "Input should be a valid string", prompt)


def _is_ids(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(token, int) and 0 <= token < 1 << 32 for token in value)
    )


def _read_stop(value: Any) -> tuple[str, ...]:
    stops = [value] if isinstance(value, str) else value or []
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise bad_field("body.stop", "string_type", "Input should be a valid string", value)
    return tuple(stop for stop in stops if stop)


def _read_bool(body: dict[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    message = "Input should be a valid boolean, unable to interpret input"
    raise bad_field(f"body.{name}", "bool_parsing", message, value)


def _read_str(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise bad_field(f"body.{name}", "string_type", "Input should be a valid string", value)
    return value
