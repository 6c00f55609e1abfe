"""One connection to NATS, shared by the bus and the registry of a process.

                 connected                        lost (EOF, no PONG, closed by the server)
    waiting ------------------> session is open -----------------------------------------+
       ^                                                                                 |
       +---------------------------------------------------------------------------------+

Each session is a fresh client. The library's own reconnect is off: it gives up for ever on some
errors of the server, sends what was buffered while the server was away, and leaves watches of
JetStream behind that nothing feeds. So there is one way back after every kind of loss: open a new
session, subscribe again, tell who asked to be told.

Replies reach a connection on subjects below its own inbox (`inbox_of`), so that a server's
permissions can keep others from listening there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import re
from collections.abc import AsyncIterator, Awaitable, Callable

import nats.errors
from nats.aio.client import Client

from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.errors import AxiomError, SettingsError, UnavailableError
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log

CONNECT_TIMEOUT_S = 1
PING_INTERVAL_S = 1
PINGS_OUTSTANDING_MAX = 2
RETRY_MIN_MS = 50.0
RETRY_MAX_MS = 500.0
LOSS_POLL_S = 0.25
"""How long a loss may go unseen when the library gets stuck on its way to saying so."""
CLOSE_TIMEOUT_S = 1.0
OUTBOUND_BYTES_MAX = 8 << 20

CONNECTION_ERRORS = (nats.errors.Error, OSError, TimeoutError)
_LIBRARY_LOG = logging.getLogger("nats.aio.client")
_REFUSED = re.compile(r'permissions violation for (\w+) (?:to|with reply to) "(.+)"', re.IGNORECASE)
_REFUSED_TOKENS = 4
"""How much of a refused subject makes it another one for the log: the rest may be random."""


def inbox_of(name: str) -> str:
    """What the subjects begin with on which the connection `name` gets replies."""
    return f"_INBOX.{name}"


class Session:
    """A client from connect to loss."""

    def __init__(self) -> None:
        self.client = Client()
        self.lost = asyncio.Event()
        self._bounds: set[asyncio.Timeout] = set()

    @property
    def open(self) -> bool:
        """Whether calls have a chance."""
        return self.client.is_connected and not self.lost.is_set()

    def lose(self) -> None:
        """From here on it is of no use: what waits for an answer stops waiting."""
        self.lost.set()
        now_s = asyncio.get_running_loop().time()
        for bound in self._bounds:
            # One whose time is up ends by itself, and takes no other.
            if not bound.expired():
                bound.reschedule(now_s)

    @contextlib.asynccontextmanager
    async def bounded(self, timeout_s: float) -> AsyncIterator[None]:
        """TimeoutError when the block takes longer than `timeout_s`, or than this session lasts."""
        task = asyncio.current_task()
        cancels = task.cancelling() if task else 0
        async with asyncio.timeout(timeout_s) as bound:
            self._bounds.add(bound)
            try:
                yield
            finally:
                self._bounds.discard(bound)
            # The library waits in ways that lose a cancellation which meets an answer.
            if task and task.cancelling() > cancels:
                raise asyncio.CancelledError


class _LibraryErrors(logging.Handler):
    """What the library logs of a connection that it reads no more: one line for all of a kind in a
    minute, without the library's way there. The loss itself is found, and told, as any other."""

    def __init__(self, log: Log) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """As `NatsConnection` tells errors that it is called back with."""
        error = record.exc_info[1] if record.exc_info else None
        cause = record.getMessage() if error is None else str(error) or repr(error)
        kind = record.getMessage() if error is None else type(error).__name__
        self._log.warning("nats error", once_a_minute=kind, cause=cause)


_NO_CREDENTIALS = NatsCredentials()


class NatsConnection:
    """Keeps a session open. `url` may list several servers, separated by commas. `name` is made of
    subject tokens, and is no other connection's where permissions are cut by it.

    `start` returns after the first attempt, whether or not it succeeded; retries go on in a task of
    the owner until `close`.
    """

    def __init__(
        self,
        url: str,
        *,
        name: str,
        clock: Clock,
        credentials: NatsCredentials = _NO_CREDENTIALS,
    ) -> None:
        self.log = Log("axiom.nats", clock)
        self.refused = 0
        """What the server's permissions refused since the start."""
        self._servers = [server.strip() for server in url.split(",")]
        self._name = name
        self._clock = clock
        self._credentials = credentials
        self._owner: Owner | None = None
        self._task: asyncio.Task[None] | None = None
        self._session: Session | None = None
        self._changed = asyncio.Event()
        self._closing = asyncio.Event()
        # Only spreads reconnects of a fleet; no decision depends on it.
        self._jitter = random.Random(name)
        self._on_session: list[Callable[[Session], Awaitable[None]]] = []
        self._on_reconnect: list[Callable[[], Awaitable[None]]] = []

    @property
    def connected(self) -> bool:
        """Whether a session is open."""
        return self._session is not None and self._session.open

    @property
    def owner(self) -> Owner:
        """Who owns the tasks of what runs on this connection."""
        if self._owner is None:
            raise UnavailableError("the NATS connection is not started")
        return self._owner

    async def start(self, owner: Owner) -> bool:
        """Try once to connect, then keep trying in the background; True when connected.

        SettingsError when the files of the credentials are not there or can't be used.
        """
        self._credentials.read_seed()
        self._credentials.tls()
        self._owner = owner
        # The library has one log for all; so has a process one connection.
        _LIBRARY_LOG.handlers[:] = [_LibraryErrors(self.log)]
        _LIBRARY_LOG.propagate = False
        self._session = await self._open()
        self._task = owner.create_task(self._keep_open(), name=f"nats connection {self._name}")
        return self.connected

    async def close(self) -> None:
        """Send what is buffered and end; nothing connects again."""
        self._closing.set()
        if self._session is not None:
            self._session.lose()
        if self._task is not None:
            await asyncio.wait({self._task})

    def session(self) -> Session:
        """The open session; UnavailableError when there is none."""
        if self._session is None or not self._session.open:
            raise UnavailableError("NATS is not connected")
        return self._session

    async def wait_session(self) -> Session:
        """The open session, as soon as there is one."""
        while not self.connected:
            self._changed.clear()
            await self._changed.wait()
        return self.session()

    async def on_session(self, prepare: Callable[[Session], Awaitable[None]]) -> None:
        """Run `prepare` on the open session, if any, and on each later one before others see it."""
        self._on_session.append(prepare)
        if self._session is not None and self._session.open:
            with contextlib.suppress(*CONNECTION_ERRORS):
                # A session lost meanwhile is followed by one that is prepared as well.
                await prepare(self._session)

    def on_reconnect(self, callback: Callable[[], Awaitable[None]]) -> None:
        """Call back after each session that `start` did not open itself."""
        self._on_reconnect.append(callback)

    async def _keep_open(self) -> None:
        wait_ms = RETRY_MIN_MS
        while not self._closing.is_set():
            if self._session is not None:
                await self._until_lost(self._session)
                if self._closing.is_set():
                    break
                self._session = None
                self.log.warning("nats lost", connection=self._name)
            await self._clock.sleep_ms(self._jitter.uniform(0.5, 1.0) * wait_ms)
            wait_ms = min(2 * wait_ms, RETRY_MAX_MS)
            self._session = await self._open()
            if self._session is not None and not self._closing.is_set():
                wait_ms = RETRY_MIN_MS
                self.log.info("nats connected", connection=self._name)
                self._changed.set()
                await self._tell_reconnected()
        if self._session is not None:
            await self._close_session(self._session)

    async def _open(self) -> Session | None:
        session = Session()
        try:
            async with asyncio.timeout(2 * CONNECT_TIMEOUT_S):
                await self._connect(session)
                prepared = 0
                # Preparing waits, and more may be asked for meanwhile: none may be left out.
                while prepared < len(self._on_session):
                    await self._on_session[prepared](session)
                    prepared += 1
                    if prepared == len(self._on_session):
                        await session.client.flush()
        except (*CONNECTION_ERRORS, SettingsError) as error:
            self.log.warning(
                "nats not reachable", once_a_minute="connect", cause=str(error) or repr(error)
            )
            await self._close_session(session)
            return None
        return session

    async def _connect(self, session: Session) -> None:
        async def lost() -> None:
            session.lose()

        await session.client.connect(
            servers=self._servers,
            name=self._name,
            error_cb=self._report,
            closed_cb=lost,
            allow_reconnect=False,
            # The library tries each server this often before it gives up; 0 would mean for ever.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=CONNECT_TIMEOUT_S,
            ping_interval=PING_INTERVAL_S,
            max_outstanding_pings=PINGS_OUTSTANDING_MAX,
            flush_timeout=CONNECT_TIMEOUT_S,
            inbox_prefix=inbox_of(self._name),
            nkeys_seed_str=self._credentials.read_seed(),
            tls=self._credentials.tls(),
        )

    async def _report(self, error: Exception) -> None:
        if refused := _REFUSED.search(str(error)):
            # Told here and nowhere else: whoever waits for an answer waits in vain.
            self.refused += 1
            action, subject = refused.groups()
            kind = ".".join(subject.split(".")[:_REFUSED_TOKENS])
            self.log.warning(
                "nats refuses",
                once_a_minute=f"refused {action} {kind}",
                action=action.lower(),
                subject=subject,
                cause=str(error),
            )
            return
        self.log.warning(
            "nats error", once_a_minute=type(error).__name__, cause=str(error) or repr(error)
        )

    async def _until_lost(self, session: Session) -> None:
        while session.open:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOSS_POLL_S):
                    await session.lost.wait()
        if not self._closing.is_set():
            await self._close_session(session)

    async def _close_session(self, session: Session) -> None:
        session.lose()
        with contextlib.suppress(*CONNECTION_ERRORS):
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                if session.client.is_connected:
                    await session.client.flush()
                await session.client.close()

    async def _tell_reconnected(self) -> None:
        for callback in self._on_reconnect:
            try:
                await callback()
            except AxiomError as error:
                self.log.warning("reconnect callback failed", cause=str(error))
