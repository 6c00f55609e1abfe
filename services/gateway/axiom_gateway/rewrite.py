"""Puts the client's own model name back into an engine's answer, whole or as a stream.

Only the member `model` at the top of each JSON object changes. The object is split into its members
(about a microsecond for a chunk of a stream), so text that merely looks like that member, at any
depth or inside a string, can't be taken for it. What is no JSON object passes as it is.
"""

from __future__ import annotations

import re

import msgspec

from axiom_common.errors import UnavailableError

LINE_BYTES_MAX = 16 << 20
"""More than any event: token log-probabilities of a long answer in one piece take a few MiB."""

_DATA = b"data:"
_ERROR_EVENT = b'data: {"error"'
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


def rename(document: bytes, name: str) -> bytes:
    """The JSON object with its top-level `model`, where it has one, set to `name`."""
    try:
        members = _MEMBERS.decode(document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return document
    if "model" not in members:
        return document
    return _ENCODER.encode(members | {"model": name})


def rename_in_text(text: str, served_name: str, name: str) -> str:
    """An engine's message with its own name for the model, as a whole word, replaced by `name`."""
    if name == served_name:
        return text
    word = rf"(?<![\w.:/~-]){re.escape(served_name)}(?![\w:/~-])"
    return re.sub(word, lambda _: name, text)


class StreamRewriter:
    """Server-sent events in, the same events out with the client's model name.

    Bytes may be cut anywhere: an incomplete line is kept back until its end comes, so what goes out
    always ends at the end of a line. `name` None: the engine's name is the client's, lines pass.
    """

    def __init__(self, name: str | None) -> None:
        self._name = name
        self._kept: list[bytes] = []
        self._kept_bytes = 0
        self.events = 0
        """Data lines that went out."""
        self.error: bytes | None = None
        """The data line in which the engine reported an error, if it did."""

    def feed(self, chunk: bytes) -> bytes:
        """The complete lines so far, rewritten. UnavailableError when a line has no end."""
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._keep(chunk)
            return b""
        whole = chunk[:cut]
        if self._kept:
            whole = b"".join((*self._kept, whole))
            self._kept.clear()
            self._kept_bytes = 0
        if cut < len(chunk):
            self._keep(chunk[cut:])
        return b"\n".join([self._line(line) for line in whole.split(b"\n")])

    def finish(self) -> bytes:
        """What was kept back, at the regular end of the stream."""
        rest = b"".join(self._kept)
        self._kept.clear()
        self._kept_bytes = 0
        return self._line(rest) if rest else b""

    def _keep(self, part: bytes) -> None:
        self._kept.append(part)
        self._kept_bytes += len(part)
        if self._kept_bytes > LINE_BYTES_MAX:
            raise UnavailableError(f"a line of the stream is longer than {LINE_BYTES_MAX} bytes")

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(_DATA):
            return line
        self.events += 1
        if line.startswith(_ERROR_EVENT):
            self.error = line
        if self._name is None:
            return line
        start = line.find(b"{", len(_DATA))
        if start < 0:
            return line
        return line[:start] + rename(line[start:], self._name)
