"""Axiom's extension of vLLM as the agent has it: the socket where it tells, the route that answers.

libs/axiom_vllm/README.md describes both.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from pathlib import Path

import aiohttp

from axiom_common.drivers.vllm_extension_fold import ExtensionFold, Heard
from axiom_common.drivers.vllm_extension_messages import DATAGRAM_BYTES_MAX, STATE_BYTES_MAX
from axiom_common.errors import EngineCallError, UnavailableError, WireError
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine_extension import EngineWord

STATE_PATH = "/axiom/v1/state"
READS_MAX = 64
"""Datagrams read in one go; the rest waits for the loop's next turn."""
ASK_TIMEOUT_MS = 12_000.0
"""The engine answers between two steps, and itself gives up on its workers after 10 s."""
_MESSAGE_CHARS_MAX = 300


class ExtensionListener:
    """Binds the socket that an engine's AXIOM_AGENT_SOCKET names, and folds what comes.

    `on_heard` runs in the loop, after each datagram that brought something. Between two turns of
    the loop the kernel keeps a bounded queue; what does not fit is dropped at the sender.
    """

    def __init__(self, path: Path, clock: Clock, on_heard: Callable[[Heard], None]) -> None:
        self.fold = ExtensionFold()
        self.malformed = 0
        self._path = path
        self._clock = clock
        self._on_heard = on_heard
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Begin to listen, in place of whoever did before; OSError when that is not possible."""
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listening.setblocking(False)
            self._path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self._path.unlink()
            listening.bind(str(self._path))
            # The engine runs as the agent's user or in its group.
            self._path.chmod(0o660)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        asyncio.get_running_loop().add_reader(listening, self._read)

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
            self._socket = None
            self._path.unlink(missing_ok=True)

    def _read(self) -> None:
        for _ in range(READS_MAX):
            if self._socket is None:
                return
            try:
                datagram = self._socket.recv(DATAGRAM_BYTES_MAX + 1)
            except BlockingIOError:
                return
            try:
                heard = self.fold.hear(datagram, self._clock.now_ms())
            except WireError:
                self.malformed += 1
                continue
            if heard.changed:
                self._on_heard(heard)


class VllmExtension:
    """The extension of the engine at `url`, told to look for the agent at `path`."""

    def __init__(self, url: str, path: Path, clock: Clock, *, token: str = "") -> None:
        self._url = url.rstrip("/") + STATE_PATH
        self._headers = {"authorization": f"Bearer {token}"} if token else {}
        self._path = path
        self._clock = clock
        self._on_word: Callable[[], None] = lambda: None
        self._telling: asyncio.Handle | None = None
        self._listener = ExtensionListener(path, clock, lambda _: self._tell_soon())
        self._session: aiohttp.ClientSession | None = None

    @property
    def unsupported(self) -> str | None:
        """Why it is off; None while it is on, or was never heard."""
        return self._listener.fold.unsupported

    def open(self, on_word: Callable[[], None]) -> None:
        """Begin to listen; OSError when that is not possible."""
        self._on_word = on_word
        self._listener.open()

    def word(self, now_ms: float) -> EngineWord | None:
        """The engine's word while it speaks."""
        fold = self._listener.fold
        return fold.word(now_ms) if fold.speaks(now_ms) else None

    def needs_whole(self, now_ms: float) -> bool:
        """Whether something was lost or not heard yet."""
        fold = self._listener.fold
        return fold.needs_whole(now_ms) or (fold.unsupported is None and not fold.speaks(now_ms))

    def forget(self) -> None:
        """The engine's process is gone."""
        self._listener.fold.forget()

    async def ask(self) -> None:
        """Have the engine tell the whole."""
        status, body = await self._get()
        if status != 200:
            text = body[:_MESSAGE_CHARS_MAX].decode("utf-8", "replace")
            raise EngineCallError(f"{STATE_PATH} answers {status}: {text}", status=status)
        try:
            heard = self._listener.fold.hear_state(body, self._clock.now_ms())
        except WireError as error:
            raise EngineCallError(str(error), status=status) from error
        if heard.changed:
            self._tell_soon()

    async def close(self) -> None:
        """Listen no more, and let go of connections."""
        self._listener.close()
        if self._telling is not None:
            self._telling.cancel()
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _tell_soon(self) -> None:
        """What comes in one turn of the loop is one change."""
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_soon(self._tell)

    def _tell(self) -> None:
        self._telling = None
        self._on_word()

    async def _get(self) -> tuple[int, bytes]:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=ASK_TIMEOUT_MS / 1e3)
            )
        try:
            async with self._session.get(
                self._url, headers=self._headers, allow_redirects=False
            ) as response:
                body = b""
                async for part in response.content.iter_any():
                    body += part
                    if len(body) > STATE_BYTES_MAX:
                        raise aiohttp.ClientPayloadError(f"more than {STATE_BYTES_MAX} bytes")
                return response.status, body
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            problem = str(error) or type(error).__name__
            raise UnavailableError(f"GET {self._url}: {problem}") from error
