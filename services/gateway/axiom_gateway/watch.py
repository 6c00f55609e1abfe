"""Who watches nodes of this gateway's view, as server-sent events.

    event: node        data: NodeView    at once, then after each change
    event: gone        data: NodeGone    the gateway forgot the node
    : still here                         after HEARTBEAT_S without an event

A change of nothing but figures is told at most each FIGURES_MS a node, all others at once. What a
client has not taken yet is a set of names, so the newest view of each is what it gets; a view is
made once for all watchers, when the first of them can take it. Making views may take a share of
this process's time, and no more: requests come first.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable

from starlette.responses import Response

from axiom_common.errors import AxiomError, UnavailableError
from axiom_common.model.access import ApiKey
from axiom_common.model.ids import NodeId
from axiom_common.ports.clock import Clock
from axiom_common.runtime.http_protocol import ABORT
from axiom_common.wire.views import NodeGone
from axiom_gateway.asgi import Message, Receive, Scope, Send
from axiom_gateway.seen import SeenNodes, node_json

WATCHERS_MAX = 64
WATCHERS_A_KEY_MAX = 32
NAMED_MAX = 256
"""Nodes that one watcher may name."""
FIGURES_MS = 50.0
HEARTBEAT_S = 10.0
WRITE_S = 10.0
"""How long a client may take no byte before it is cut."""
LAST_WORD_S = 1.0
"""The same at the end of the process."""
VIEWS_A_TURN = 4
TURN_SHARE = 0.2
"""Of the process's time, for making views."""
EVENT_STREAM = "text/event-stream"
_HEAD = [(b"content-type", EVENT_STREAM.encode()), (b"cache-control", b"no-store")]
_HEARTBEAT = b": still here\n\n"


class TooManyWatchersError(AxiomError):
    """No more can be served at a time."""

    code = "too-many-watchers"


class Watcher:
    """One client: which nodes it wants to hear of (None: all), and of which it has yet to. `key` is
    what it came with."""

    def __init__(self, nodes: frozenset[NodeId] | None, key: ApiKey) -> None:
        self.nodes = nodes
        self.key = key
        self.untold: dict[NodeId, None] = {}
        self.woken = asyncio.Event()
        self.closed = False
        self.writing: asyncio.Timeout | None = None

    def tell(self, node: NodeId) -> None:
        """Its next view of the node is due."""
        self.untold[node] = None
        self.woken.set()

    def close(self) -> None:
        """End it: at once, or within LAST_WORD_S when the client does not read."""
        self.closed = True
        self.woken.set()
        if self.writing is not None:
            self.writing.reschedule(asyncio.get_running_loop().time() + LAST_WORD_S)

    def take(self) -> list[NodeId]:
        """The next few names, those first that wait longest."""
        taken = list(self.untold)[:VIEWS_A_TURN]
        for node in taken:
            del self.untold[node]
        if not self.untold and not self.closed:
            self.woken.clear()
        return taken


class Watches:
    """All watchers of `nodes`."""

    def __init__(self, clock: Clock, nodes: SeenNodes) -> None:
        self.nodes = nodes
        self._clock = clock
        self._watchers: set[Watcher] = set()
        self._named: Counter[NodeId] = Counter()
        self._of_all = 0
        self._events: dict[NodeId, bytes] = {}
        """Of the newest version of a node, while somebody watches."""
        self._later: dict[NodeId, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._turn = asyncio.Lock()
        self._next_turn_ms = 0.0
        self._closed = False
        self.may_watch: Callable[[ApiKey], bool] = lambda _: True
        """Whether a key that a request came with grants it still."""

    def __len__(self) -> int:
        """How many watch."""
        return len(self._watchers)

    def changed(self, node: NodeId, figures_only: bool) -> None:
        """The view of a node changed, or the node went."""
        if not self._of_all and node not in self._named:
            return
        self._events.pop(node, None)
        if not figures_only:
            self._later.pop(node, None)
            self._tell(node)
            return
        self._later[node] = None
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(FIGURES_MS / 1e3, self._tell_later)

    def open(self, nodes: Iterable[NodeId], key: ApiKey) -> Watcher:
        """A watcher of these nodes, of all if there are none; UnavailableError at the end of the
        process, TooManyWatchersError."""
        if self._closed:
            raise UnavailableError("this gateway ends: watch another")
        if not self.may_watch(key):
            raise UnavailableError("the key has just been changed: ask again")
        if len(self._watchers) >= WATCHERS_MAX:
            raise TooManyWatchersError(f"{WATCHERS_MAX} watch already")
        if sum(one.key.name == key.name for one in self._watchers) >= WATCHERS_A_KEY_MAX:
            raise TooManyWatchersError(f"{WATCHERS_A_KEY_MAX} watch with the key {key.name!r}")
        wanted = frozenset(nodes)
        watcher = Watcher(wanted or None, key)
        self._watchers.add(watcher)
        self._named.update(wanted)
        self._of_all += not wanted
        for node in sorted(self.nodes.node_names()):
            if not wanted or node in wanted:
                watcher.tell(node)
        return watcher

    def leave(self, watcher: Watcher) -> None:
        """It ended."""
        self._watchers.discard(watcher)
        for node in watcher.nodes or ():
            self._named[node] -= 1
            if not self._named[node]:
                del self._named[node]
        self._of_all -= watcher.nodes is None
        if not self._of_all:
            unwatched = self._events.keys() - self._named.keys()
            for node in unwatched:
                del self._events[node]

    def keys_changed(self) -> None:
        """End those whose key is not what it was."""
        for watcher in self._watchers:
            if not self.may_watch(watcher.key):
                watcher.close()

    def close(self) -> None:
        """End all, and take no more."""
        self._closed = True
        for watcher in self._watchers:
            watcher.close()
        if self._timer is not None:
            self._timer.cancel()

    async def next_events(self, watcher: Watcher) -> bytes | None:
        """What to write next, once there is something; None at the end."""
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await watcher.woken.wait()
        except TimeoutError:
            return _HEARTBEAT
        async with self._turn:
            if watcher.closed:
                return None
            await self._clock.sleep_ms(self._next_turn_ms - self._clock.now_ms())
            began_ms = self._clock.now_ms()
            events = b"".join([self._event(node) for node in watcher.take()])
            now_ms = self._clock.now_ms()
            self._next_turn_ms = now_ms + (now_ms - began_ms) * (1 / TURN_SHARE - 1)
        return events

    def _event(self, node: NodeId) -> bytes:
        """The newest of a node, made when nobody took it before."""
        event = self._events.get(node)
        if event is None:
            seen = self.nodes.seen_node(node)
            if seen is None:
                return b"event: gone\ndata: %b\n\n" % NodeGone(node=node).model_dump_json().encode()
            event = self._events[node] = b"event: node\ndata: %b\n\n" % node_json(seen)
        return event

    def _tell(self, node: NodeId) -> None:
        for watcher in self._watchers:
            if watcher.nodes is None or node in watcher.nodes:
                watcher.tell(node)

    def _tell_later(self) -> None:
        self._timer = None
        later, self._later = self._later, {}
        for node in later:
            self._tell(node)


class WatchResponse(Response):
    """The answer to one watcher, until the client goes or does not read, its key is withdrawn, or
    the process ends."""

    def __init__(self, watches: Watches, nodes: Iterable[NodeId], key: ApiKey) -> None:
        super().__init__(media_type=EVENT_STREAM)
        self._watches = watches
        self._nodes = nodes
        self._key = key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; raises what `Watches.open` does before anything is sent."""
        watcher = self._watches.open(self._nodes, self._key)
        try:
            async with asyncio.TaskGroup() as group:
                gone = group.create_task(_until_gone(receive, watcher), name="watch client")
                await self._tell(watcher, send)
                gone.cancel()
        except* TimeoutError:
            # To close the connection in order would wait for a reader that is not there.
            scope[ABORT]()
            # The server hears of it, before it hears that the answer is not whole.
            await asyncio.sleep(0)
        finally:
            self._watches.leave(watcher)

    async def _tell(self, watcher: Watcher, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": _HEAD}
        await _write(watcher, send, head)
        while (events := await self._watches.next_events(watcher)) is not None:
            body = {"type": "http.response.body", "body": events, "more_body": True}
            await _write(watcher, send, body)
        await _write(watcher, send, {"type": "http.response.body", "more_body": False})


async def _write(watcher: Watcher, send: Send, message: Message) -> None:
    limit_s = LAST_WORD_S if watcher.closed else WRITE_S
    try:
        async with asyncio.timeout(limit_s) as watcher.writing:
            await send(message)
    finally:
        watcher.writing = None


async def _until_gone(receive: Receive, watcher: Watcher) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    watcher.close()
