"""Puts the client's own model name back into an engine's answer, whole or as a stream.

Only the member `model` at the top of each JSON object changes. The object is split into its members
(about a microsecond for a chunk of a stream), so text that merely looks like that member, at any
depth or inside a string, can't be taken for it. In what is no JSON object, and in errors, the name
is replaced wherever it stands: an engine's name for an adapter reaches no client.
"""

from __future__ import annotations

import re

import msgspec

from axiom_common.errors import UnavailableError
from axiom_common.model.adapter import is_managed
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_gateway.errors import ApiError, from_engine

LINE_BYTES_MAX = 16 << 20
"""More than any event: token log-probabilities of a long answer in one piece take a few MiB."""

_DATA = b"data:"
_ERROR = re.compile(rb'\{\s*"error"\s*:\s*\{')
_BEGIN = r"(?<![\w.:/~-])"
_END = r"(?![\w~-]|[.:/]\w)"
_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ENCODER = msgspec.json.Encoder()


class Renaming:
    """From an engine's name for a model to the client's, where they differ.

    `adapter` is the engine's bare name for an adapter, which its messages use even where requests
    carry another one.
    """

    def __init__(self, served_name: str, name: str, *, adapter: EngineAdapter = BASE) -> None:
        self._served_names = [served_name]
        if adapter not in (BASE, served_name, name):
            self._served_names.append(adapter)
        self._name = name
        self._needed = name != served_name

    def document(self, document: bytes) -> bytes:
        """The JSON object with the client's name at its top-level `model`, where it has one."""
        if not self._needed:
            return document
        try:
            members = _MEMBERS.decode(document)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            # Whatever it is, the engine's name is nobody's business.
            return self.text(document.decode(errors="surrogateescape")).encode(
                errors="surrogateescape"
            )
        if "model" not in members:
            return document
        return _ENCODER.encode(members | {"model": self._name})

    def text(self, text: str) -> str:
        """An engine's message with the client's name wherever its own stands as a whole word."""
        if not self._needed:
            return text
        for served_name in self._served_names:
            served = re.escape(served_name)
            # A managed name can't be mistaken, whatever stands around it; others are mere words.
            managed = is_managed(EngineAdapter(served_name))
            word = rf"{served}(?!\d)" if managed else rf"{_BEGIN}{served}{_END}"
            text = re.sub(word, lambda _: self._name, text)
        return text


class StreamRewriter:
    """Server-sent events in, the same events out with the client's model name.

    Bytes may be cut anywhere: an incomplete line is kept back until its end comes, so what goes out
    always ends at the end of a line.
    """

    def __init__(self, renaming: Renaming) -> None:
        self._renaming = renaming
        self._kept = bytearray()
        self.events = 0
        """Data lines that went out."""
        self.last = b""
        """The JSON object of the last one that had any: where an engine tells of usage."""
        self.error: ApiError | None = None
        """What the engine reported as an error, if it did."""

    def feed(self, chunk: bytes) -> bytes:
        """The complete lines so far, rewritten. UnavailableError when a line has no end."""
        cut = chunk.rfind(b"\n") + 1
        if not cut:
            self._keep(chunk)
            return b""
        whole = chunk[:cut]
        if self._kept:
            whole = bytes(self._kept) + whole
            self._kept.clear()
        if cut < len(chunk):
            self._keep(chunk[cut:])
        return b"\n".join([self._line(line) for line in whole.split(b"\n")])

    def finish(self) -> bytes:
        """What was kept back, at the regular end of the stream."""
        rest = bytes(self._kept)
        self._kept.clear()
        return self._line(rest) if rest else b""

    def _keep(self, part: bytes) -> None:
        self._kept += part
        if len(self._kept) > LINE_BYTES_MAX:
            raise UnavailableError(f"a line of the stream is longer than {LINE_BYTES_MAX} bytes")

    def _line(self, line: bytes) -> bytes:
        if not line.startswith(_DATA):
            return line
        self.events += 1
        start = line.find(b"{", len(_DATA))
        if start < 0:
            return line
        if _ERROR.match(line, start):
            self.error = error_in(line[start:])
            self.error.message = self._renaming.text(self.error.message)
            return line[:start] + self.error.body()
        self.last = line[start:]
        return line[:start] + self._renaming.document(self.last)


def error_in(event: bytes) -> ApiError:
    """The error that an engine put into a stream; its code says whose fault it is."""
    error = from_engine(500, event)
    code = str(error.error_code)
    if len(code) == 3 and code.startswith("4") and code.isdigit():
        error.status = int(code)
    return error
