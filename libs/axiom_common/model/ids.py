"""Identifiers and the alphabets they keep.

Node, region, gateway and engine names become NATS tokens and label values, so they use the
restricted alphabet of NATS ADR-6. An engine's id is `<node>.<engine>`; neither part holds a dot, so
the id splits in one way only.
"""

from __future__ import annotations

import re
from typing import NewType

from axiom_common.errors import InvalidInputError

RegionId = NewType("RegionId", str)
NodeId = NewType("NodeId", str)
EngineId = NewType("EngineId", str)
GatewayId = NewType("GatewayId", str)
EngineAdapter = NewType("EngineAdapter", str)
"""An adapter's name on an engine: `<adapter>~<revision>`, or a bare name that people loaded."""

BASE = EngineAdapter("")
"""Stands where an adapter could stand, for traffic of the base model itself."""

TOKEN_PATTERN = "[A-Za-z0-9_-]{1,64}"
_TOKEN = re.compile(TOKEN_PATTERN)
NAME_PATTERN = "[A-Za-z0-9][A-Za-z0-9._:-]*(/[A-Za-z0-9_:-][A-Za-z0-9._:-]*)*"
NAME_MAX = 128
_NAME = re.compile(NAME_PATTERN)


def token(text: str, *, path: str) -> str:
    """Check a name that becomes a NATS token; raises InvalidInputError naming `path`."""
    if not _TOKEN.fullmatch(text):
        raise InvalidInputError(f"{path} must match {_TOKEN.pattern}, got {text[:80]!r}", path=path)
    return text


def public_name(text: str, *, path: str) -> str:
    """Check the name of an adapter or base model.

    No comma, space or `~`, because engines list names; and no part between slashes that is empty or
    starts with a dot, because names stand in the paths of URLs.
    """
    if len(text) > NAME_MAX or not _NAME.fullmatch(text):
        raise InvalidInputError(
            f"{path} must match {_NAME.pattern} and have at most {NAME_MAX} characters, "
            f"got {text[:80]!r}",
            path=path,
        )
    return text


def engine_id(node: str, engine: str) -> EngineId:
    """Build `<node>.<engine>` from two tokens."""
    return EngineId(f"{token(node, path='node')}.{token(engine, path='engine')}")


def node_of(engine: EngineId) -> NodeId:
    """The node an engine runs on."""
    return NodeId(engine.partition(".")[0])
