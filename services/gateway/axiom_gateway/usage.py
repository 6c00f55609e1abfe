"""The tokens that an engine counted, from its answer."""

from __future__ import annotations

from typing import Annotated

import msgspec

from axiom_common.model.outcome import Usage

TOKENS_MAX = 1 << 40
UNTOLD = Usage()

_Count = Annotated[int, msgspec.Meta(ge=0, le=TOKENS_MAX)]


class _Details(msgspec.Struct):
    cached_tokens: _Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None
    prompt_tokens_details: _Details | None = None


class _Document(msgspec.Struct):
    usage: _Usage | None = None


_DECODER = msgspec.json.Decoder(_Document)


def usage_in(document: bytes) -> Usage:
    """The usage of an answer, or of one event of a stream: a JSON object. Whatever it is that does
    not fit is untold."""
    try:
        usage = _DECODER.decode(document).usage
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return UNTOLD
    if usage is None:
        return UNTOLD
    details = usage.prompt_tokens_details
    cached = details.cached_tokens if details is not None else None
    return Usage(usage.prompt_tokens, usage.completion_tokens, cached)
