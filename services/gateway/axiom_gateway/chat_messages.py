"""A chat's messages as vLLM 0.32 hands them to the chat template.

Contents become one string or a list of parts, whichever the template takes; arguments of tool calls
become objects; fields that no template is given are dropped. What vLLM refuses is `MalformedError`
here. The members of tool calls come in the order in which vLLM's checks leave them, because
templates write them out as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Message = dict[str, Any]

PARTS_MAX = 1_024
"""Of all messages together, one that is a text counting as one."""

_TEXT_OF = {
    "text": "text",
    "input_text": "text",
    "output_text": "text",
    "refusal": "refusal",
    "thinking": "thinking",
}
"""Types of parts that are text, and the member that holds it."""
_MAY_LACK_TEXT = frozenset(("text", "refusal"))
_MEDIA = {
    "image_url": "image",
    "input_image": "image",
    "image_pil": "image",
    "image_embeds": "image",
    "audio_url": "audio",
    "input_audio": "audio",
    "audio_embeds": "audio",
    "video_url": "video",
    "video_embeds": "video",
}
_PART_MEMBERS = frozenset(
    (*_TEXT_OF, *_MEDIA, "audio", "closed", "data", "file", "image_pil", "name", "type", "uuid")
) | {"prompt_cache_breakpoint"}
"""Members of a part that the template does not get to see, but for its text."""
_BILLING_LINE = "x-anthropic-billing-header"
"""Differs in each request, so engines drop it from system texts."""


class MalformedError(Exception):
    """Messages that the engine will refuse."""


ARGUMENT_CHARS_MAX = 64 << 10
"""Of the arguments of all tool calls: JSON of its own, which is parsed and laid out anew."""


class TooManyError(Exception):
    """More than PARTS_MAX, whose preparation would keep others waiting."""


class UnsureError(Exception):
    """Messages of which it is not known what the engine makes."""


class Conversation(NamedTuple):
    """`messages`: for the template. `marked`: the same with the mark in place of each part that is
    not text, where such parts go to the template; else None, and the mark is in `messages`: the
    engine puts something there, at the beginning of the message."""

    messages: list[Message]
    marked: list[Message] | None


def conversation(told: Sequence[object], *, as_parts: bool, mark: str) -> Conversation:
    """The messages of a request; MalformedError, UnsureError, TooManyError."""
    if sum(map(_parts_of, told)) > PARTS_MAX or _argument_chars(told) > ARGUMENT_CHARS_MAX:
        raise TooManyError
    marked = [_message(one, as_parts, mark) for one in told]
    if not as_parts or not any(map(_has_media, told)):
        return Conversation(marked, None)
    return Conversation([_message(one, as_parts, None) for one in told], marked)


def without_developer(messages: Sequence[Message]) -> list[Message]:
    """For templates that have no such role: it becomes "system", and where system messages are
    then not one at the beginning, they become that."""
    renamed = [
        {name: value for name, value in one.items() if name != "tools"} | {"role": "system"}
        if one["role"] == "developer"
        else one
        for one in messages
    ]
    systems = [one for one in renamed if one["role"] == "system"]
    if len(systems) == 1 and renamed[0] is systems[0]:
        return renamed
    texts = [text for one in systems if (text := _joined(one.get("content", "")))]
    others = [one for one in renamed if one["role"] != "system"]
    return [{"role": "system", "content": "\n\n".join(texts)}, *others]


def _joined(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if "text" in part)


def _parts_of(message: object) -> int:
    content = message.get("content") if isinstance(message, dict) else None
    return 1 + len(content) if isinstance(content, list) else 1


def _has_media(message: object) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return isinstance(content, list) and any(
        isinstance(part, dict) and _medium(part) is not None for part in content
    )


def _medium(part: Mapping[str, Any]) -> str | None:
    """What a part is that is not text. Without a type, or with a `uuid`, its members say it."""
    kind = part.get("type")
    if kind is None or part.get("uuid") is not None:
        return next((_MEDIA[name] for name in _MEDIA if name in part), None)
    return _MEDIA.get(kind) if isinstance(kind, str) else None


def _message(told: object, as_parts: bool, mark: str | None) -> Message:
    role = told.get("role") if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(role, str):
        raise MalformedError
    content = told.get("content")
    if not isinstance(content, str) or content.startswith(_BILLING_LINE):
        content = _content(role, content, as_parts, mark)
    elif as_parts:
        content = [{"type": "text", "text": content}]
    message: Message = {"role": role, "content": content}
    if role == "assistant":
        _add_assistants(message, told)
    elif role == "tool":
        _add_tools(message, told)
    for name in ("name", "task"):
        if isinstance(told.get(name), str):
            message[name] = told[name]
    if role == "developer":
        message["tools"] = told.get("tools")
    return message


def _content(role: str, told: object, as_parts: bool, mark: str | None) -> str | list[Message]:
    """Where a template takes a string, engines put placeholders of media before all texts, and
    leave out those that are empty."""
    content = [] if told is None else [told] if isinstance(told, str) else told
    if not isinstance(content, list):
        raise MalformedError
    if role == "system":
        content = list(_without_billing(content))
    parts = list(_parts(content, as_parts, mark))
    if as_parts:
        return parts
    return "\n".join(part["text"] for part in sorted(parts, key=_is_text) if part["text"])


def _parts(content: Sequence[Any], as_parts: bool, mark: str | None) -> Iterator[Message]:
    """Parts as the template may get them, with `mark` for what is not text."""
    for part in content:
        if isinstance(part, str):
            yield {"type": "text", "text": part}
            continue
        if not isinstance(part, dict):
            raise MalformedError
        others = _rest(part, _PART_MEMBERS) if as_parts else {}
        medium = _medium(part)
        if medium is not None:
            if mark is None:
                yield {"type": medium, **others}
            elif as_parts:
                yield {"type": "text", "text": mark}
            else:
                yield {"type": medium, "text": mark}
            continue
        kind = part.get("type")
        if not isinstance(kind, str) or kind not in _TEXT_OF:
            raise UnsureError
        text = part.get(_TEXT_OF[kind])
        if isinstance(text, str):
            yield {"type": "text", "text": text, **others}
        elif text is not None or kind not in _MAY_LACK_TEXT:
            raise MalformedError


def _without_billing(content: Sequence[Any]) -> Iterator[Any]:
    for part in content:
        is_text = isinstance(part, dict) and part.get("type") == "text"
        text = part.get("text") if is_text else part
        if not isinstance(text, str) or not text.startswith(_BILLING_LINE):
            yield part
            continue
        rest = text.partition("\n")[2]
        if rest:
            yield {**part, "text": rest} if is_text else rest


def _is_text(part: Message) -> bool:
    return bool(part["type"] == "text")


def _add_assistants(message: Message, told: Mapping[str, Any]) -> None:
    calls = told.get("tool_calls")
    if calls is not None:
        if not isinstance(calls, list):
            raise MalformedError
        if calls:
            message["tool_calls"] = [_tool_call(call) for call in calls]
    reasoning = told.get("reasoning")
    if reasoning is None:
        reasoning = told.get("reasoning_content")
    if reasoning is not None:
        message["reasoning"] = message["reasoning_content"] = reasoning


def _tool_call(call: object) -> Message:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict):
        raise MalformedError
    arguments, name = function.get("arguments"), function.get("name")
    if (
        not isinstance(arguments, str)
        or not isinstance(name, str)
        or not isinstance(call.get("id"), str)
        or call.get("type") != "function"
    ):
        raise MalformedError
    ordered = {"arguments": _object(arguments), "name": name}
    return {
        "id": call["id"],
        "function": {**ordered, **_rest(function, ordered)},
        "type": "function",
        **_rest(call, ("id", "function", "type")),
    }


def _rest(told: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in known}


def _argument_chars(messages: Iterable[Any]) -> int:
    calls = (
        call
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("tool_calls"), list)
        for call in message["tool_calls"]
        if isinstance(call, dict) and isinstance(call.get("function"), dict)
    )
    told = (call["function"].get("arguments") for call in calls)
    return sum(len(arguments) for arguments in told if isinstance(arguments, str))


def _object(arguments: str) -> dict[str, Any]:
    """What is no JSON object becomes an empty one, so that the conversation can go on."""
    try:
        parsed = json.loads(arguments) if arguments else {}
    except (ValueError, RecursionError):
        return {}
    return parsed if isinstance(parsed, dict) else {}


def _add_tools(message: Message, told: Mapping[str, Any]) -> None:
    if "tool_call_id" in told:
        message["tool_call_id"] = told["tool_call_id"]
    content = message["content"]
    if isinstance(content, list) and all(part["type"] == "text" for part in content):
        message["content"] = "\n".join(part["text"] for part in content)
