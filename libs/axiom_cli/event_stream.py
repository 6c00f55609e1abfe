"""Server-sent events from the bytes that they come in, whatever way those are cut."""

from __future__ import annotations

from collections.abc import Iterator

EVENT_BYTES_MAX = 16 << 20


class EventStream:
    """One stream. Comments are left out; ValueError for an event above EVENT_BYTES_MAX."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        """(event, data) of each that is whole now."""
        # The end of an event may lie across two chunks.
        searched = max(0, len(self._rest) - 1)
        self._rest += chunk
        begin = 0
        while (end := self._rest.find(b"\n\n", max(begin, searched))) >= 0:
            event = _parsed(bytes(self._rest[begin:end]))
            begin = end + 2
            if event is not None:
                yield event
        del self._rest[:begin]
        if len(self._rest) > EVENT_BYTES_MAX:
            raise ValueError(f"an event above {EVENT_BYTES_MAX} bytes")


def _parsed(event: bytes) -> tuple[str, bytes] | None:
    kind, data = "", []
    for line in event.split(b"\n"):
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"event":
            kind = value.decode(errors="replace")
        elif name == b"data":
            data.append(value)
    return (kind, b"\n".join(data)) if data else None
