"""What a chat request gives to the chat template beside its messages, as vLLM 0.32 gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from axiom_common.drivers.chat_template import ChatTemplate, NotRenderedError
from axiom_gateway.chat_messages import (
    Conversation,
    MalformedError,
    Message,
    UnsureError,
    conversation,
    without_developer,
)
from axiom_gateway.prompt_fields import Members, read

_ORDERS = """
    chat_template conversation max_length messages model_config padding
    return_assistant_tokens_mask return_dict return_tensors tokenize tokenizer tokenizer_kwargs
    tools truncation
"""
_TO_THE_ENGINE = frozenset(_ORDERS.split())
"""Template arguments that are no variables, but orders about how to render."""
_UNSET = (None, "auto")
"""Values of arguments that engines take for none."""
_OPEN_END = "\ufdd1"


class _Function(msgspec.Struct, omit_defaults=False):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class _Tool(msgspec.Struct):
    function: _Function
    type: Literal["function"] = "function"
    defer_loading: bool | None = None


class ChatValues(NamedTuple):
    """Of one request. `arguments`: for the template, by name."""

    messages: list[Any]
    tools: list[dict[str, Any]] | None
    documents: list[dict[str, Any]] | None
    arguments: Mapping[str, Any]
    adds_generation_prompt: bool
    continues_final: bool
    adds_special_tokens: bool

    def conversation(self, template: ChatTemplate, mark: str) -> Conversation:
        """The messages for `template`; MalformedError, UnsureError, TooManyError."""
        told = conversation(self.messages, as_parts=template.takes_parts, mark=mark)
        if template.knows_developer or not _has_developer(told.messages):
            return told
        marked = None if told.marked is None else without_developer(told.marked)
        return Conversation(without_developer(told.messages), marked)

    def variables(self, read_names: frozenset[str]) -> dict[str, Any]:
        """All but the messages, of those that a template reads."""
        own = {name: value for name, value in self.arguments.items() if name in read_names}
        return own | {
            "tools": self.tools,
            "documents": self.documents,
            "add_generation_prompt": self.adds_generation_prompt,
        }


def chat_values(members: Members) -> ChatValues:
    """From the members of a body; UnsureError, MalformedError, msgspec's errors."""
    messages = read(members, "messages", list[Any])
    told = read(members, "chat_template_kwargs", dict[str, Any]) or {}
    arguments = {name: value for name, value in told.items() if value not in _UNSET}
    if not messages:
        raise MalformedError
    if not _TO_THE_ENGINE.isdisjoint(told):
        raise UnsureError
    effort = read(members, "reasoning_effort", str)
    if effort is not None:
        # Asking for an effort turns thinking on in templates that want to be told so.
        arguments = {"enable_thinking": effort != "none", **arguments, "reasoning_effort": effort}
    continues = read(members, "continue_final_message", bool) or False
    adds_prompt = read(members, "add_generation_prompt", bool)
    if continues and adds_prompt is not False:
        raise MalformedError
    documents = read(members, "documents", list[dict[str, str]])
    return ChatValues(
        messages=messages,
        tools=_tools(members),
        documents=arguments.get("documents") if documents is None else documents,
        arguments={
            name: value
            for name, value in arguments.items()
            if name not in ("documents", "add_generation_prompt", "continue_final_message")
        },
        adds_generation_prompt=adds_prompt is not False,
        continues_final=continues,
        adds_special_tokens=read(members, "add_special_tokens", bool) or False,
    )


class OpenEnd(NamedTuple):
    """A final message that the answer goes on with; `text` is its text."""

    text: str

    def cut_from(self, rendered: str) -> str:
        """What stands before its end. NotRenderedError where the template dropped it."""
        at = rendered.rfind(_OPEN_END)
        if at < 0 or self.text.strip() not in rendered:
            raise NotRenderedError("the final message can't be gone on with")
        # A template that trims its texts would trim the end of this one.
        kept = rendered[at + len(_OPEN_END) :].startswith(" ")
        return rendered[:at] if kept else rendered[:at].rstrip()


def continued(messages: Sequence[Message], source: str) -> tuple[list[Message], OpenEnd]:
    """Messages whose last one has a mark where it ends; NotRenderedError where it has no text, or
    the template reads none."""
    *before, last = messages
    content = last["content"]
    if "content" not in source:
        raise NotRenderedError("the template shows no content")
    if isinstance(content, str):
        marked: Any = content + _OPEN_END + " "
        text = content
    else:
        index = next((n for n in _backwards(content) if "text" in content[n]), None)
        if index is None:
            raise NotRenderedError("the final message has no text")
        text = content[index]["text"]
        part = {**content[index], "text": text + _OPEN_END + " "}
        marked = [*content[:index], part, *content[index + 1 :]]
    return [*before, {**last, "content": marked}], OpenEnd(text)


def _backwards(items: Sequence[object]) -> Iterable[int]:
    return range(len(items) - 1, -1, -1)


def _has_developer(messages: Sequence[Message]) -> bool:
    return any(message["role"] == "developer" for message in messages)


def _tools(members: Members) -> list[dict[str, Any]] | None:
    tools = read(members, "tools", list[_Tool])
    if tools is None:
        return None
    if not tools:
        raise MalformedError
    if read(members, "tool_choice", Any) == "none":
        raise UnsureError  # engines may be started to leave the tools out then, or not
    return [_told(tool) for tool in tools]


def _told(tool: _Tool) -> dict[str, Any]:
    """In vLLM's order; what is not set is null or left out, as there."""
    function = tool.function
    told: dict[str, Any] = {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
    }
    if function.strict is not None:
        told["strict"] = function.strict
    deferred = function.defer_loading if function.defer_loading is not None else tool.defer_loading
    if deferred is not None:
        told["defer_loading"] = deferred
    whole: dict[str, Any] = {"type": tool.type, "function": told}
    if tool.defer_loading is not None:
        whole["defer_loading"] = tool.defer_loading
    return whole
