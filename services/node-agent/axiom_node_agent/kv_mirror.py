"""The mirror of one engine's KV cache, kept: where its events come from, its feed, its file.

All of it runs in one event loop, which is not the agent's own (`mirror_thread`): to fold a long
prompt takes a tenth of a second.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

from axiom_common.drivers.engine_client import EngineClient, expect_ok
from axiom_common.drivers.kv_event_feed import KvEventFeed, KvEventSource, Loss, sources_of
from axiom_common.drivers.mirror_file import read_mirror, write_mirror
from axiom_common.drivers.tokenizer_shape import RefusedVocabularyError
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary
from axiom_common.errors import EngineCallError, UnavailableError, WireError
from axiom_common.model.ids import EngineId
from axiom_common.model.kv_events import KvEvent
from axiom_common.model.prefix import FactChanges, FactsState, Uncredited
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_common.state.block_mirror import BlockMirror
from axiom_common.state.event_order import Position
from axiom_node_agent.facts import FactCut
from axiom_node_agent.metrics import AgentMetrics

SOURCES_PATH = "/kv_event_sources"
LOOK_MS = 2_000.0
"""How often an engine is asked where its events come from: an engine that starts anew may have
other ports."""
LOOK_MS_MAX = 10_000.0
"""The wait doubles up to here while it does not say."""
ANSWER_MS = 2_000.0
CONFIRM_MS = 30_000.0
"""What an agent before this one knew is forgotten if the engine does not confirm it by then."""
KEEP_EVERY_MS = 30_000.0
RESTORED_AT_ONCE = 256
"""Blocks; others have their turn in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """Which engine is mirrored, under the fleet's name of its base model, and its tokenizer."""

    engine: EngineId
    url: str
    base_model: str
    tokenizer: Path


class KvMirror:
    """Of one engine. `kept_at`: its file, None for none; its folder is there.

    `state`, `detail` and `blocks` say how it is, and may be read by any thread.
    """

    def __init__(
        self,
        of: Mirrored,
        vocabulary_of: Callable[[Path], TokenizerVocabulary],
        kept_at: Path | None,
        clock: Clock,
        metrics: AgentMetrics,
        log: Log,
    ) -> None:
        self.detail = ""
        self._of = of
        self._vocabulary_of = vocabulary_of
        self._kept_at = kept_at
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._state = FactsState.STARTING
        self._mirror: BlockMirror | None = None
        self._revision = ""
        self._source: KvEventSource | None = None
        self._feed: KvEventFeed | None = None
        self._following: asyncio.Task[None] | None = None
        self._position: Position | None = None
        self._unconfirmed_ms: float | None = None
        self._kept: Position | None = None
        self._kept_ms = 0.0
        self._cleared = False
        self._tells = False
        self._counted: Counter[Uncredited] = Counter()
        self._malformed = 0

    @property
    def state(self) -> FactsState:
        """How it stands with its facts."""
        if self._state is not FactsState.TOLD:
            return self._state
        if self._mirror is not None and self._mirror.unsupported:
            return FactsState.HYBRID_CACHE
        return FactsState.STARTING if self._is_unconfirmed else FactsState.TOLD

    @property
    def blocks(self) -> int:
        """How many it mirrors."""
        return len(self._mirror) if self._mirror is not None else 0

    def cut(self, *, anew: bool, whole: bool) -> FactCut | None:
        """What to tell now; None: nothing is told. `anew`: as changes to somebody who knows nothing
        and, if `whole`, as a snapshot too."""
        told_before, self._tells = self._tells, self.state is FactsState.TOLD
        mirror = self._mirror
        if mirror is None or not (self._tells or told_before):
            return None
        self._count(mirror)
        changes, cleared = mirror.changes(), self._cleared
        self._cleared = False
        if not self._tells:
            changes = FactChanges(cleared=True)
        elif anew or not told_before:
            changes = mirror.facts()
        elif cleared:
            changes = FactChanges(True, changes.hbm, changes.any_tier)
        return FactCut(
            revision=self._revision,
            changes=changes,
            whole=mirror.facts() if whole and self._tells else None,
        )

    async def run(self, tasks: Owner) -> None:
        """Keep it until cancelled, then its file. A tokenizer that is refused stays so."""
        try:
            vocabulary = self._vocabulary_of(self._of.tokenizer)
        except RefusedVocabularyError as error:
            self._say(FactsState.TOKENIZER_REFUSED, str(error))
            return
        self._revision = vocabulary.revision
        self._mirror = await self._restored(vocabulary)
        client = EngineClient(self._of.url, timeout_ms=ANSWER_MS)
        pause_ms = LOOK_MS
        try:
            while True:
                heard = await self._look(client, tasks)
                pause_ms = LOOK_MS if heard else min(LOOK_MS_MAX, 2 * pause_ms)
                self._keep(every_ms=KEEP_EVERY_MS)
                await self._clock.sleep_ms(pause_ms)
        finally:
            await self._leave()
            self._keep(every_ms=0.0)
            await client.close()

    async def _look(self, client: EngineClient, tasks: Owner) -> bool:
        """Ask where events come from, and do as it says; whether they come."""
        try:
            sources = await self._sources(client)
        except (UnavailableError, EngineCallError, WireError) as error:
            # What it holds stands: whether it serves is for others to say.
            if self._source is None:
                self._say(FactsState.NOT_HEARD, str(error))
            return False
        if len(sources) != 1:
            await self._leave()
            self._forget()
            several = FactsState.SEVERAL_RANKS, f"{len(sources)} ranks"
            self._say(*(several if sources else (FactsState.NO_EVENTS, SOURCES_PATH)))
            return False
        is_late = self._unconfirmed_ms is not None and (
            self._clock.now_ms() - self._unconfirmed_ms > CONFIRM_MS
        )
        if self._is_unconfirmed and is_late:
            self._log.warning("engine does not confirm its mirror", engine=self._of.engine)
            await self._leave()
            self._forget()
        if sources[0] != self._source:
            await self._leave()
            self._follow(sources[0], tasks)
        return True

    async def _sources(self, client: EngineClient) -> tuple[KvEventSource, ...]:
        status, body = await client.call("GET", SOURCES_PATH)
        if status == 404:
            return ()
        expect_ok(status, body)
        return sources_of(body, urlsplit(self._of.url).hostname or "")

    def _follow(self, source: KvEventSource, tasks: Owner) -> None:
        position = self._position
        if position is not None and source.replay_endpoint is None:
            # Numbers alone fit by chance; there is nobody to ask whether they are of this life.
            self._forget()
            position = None
        self._unconfirmed_ms = None if position is None else self._clock.now_ms()
        self._source = source
        self._malformed = 0
        feed = KvEventFeed(source, self._clock, self._take, self._lose, position=position)
        self._feed = feed
        self._following = tasks.create_task(self._hear(feed), name=f"hear {self._of.engine}")
        self._say(FactsState.TOLD)

    async def _hear(self, feed: KvEventFeed) -> None:
        try:
            await feed.run()
        except UnavailableError as error:
            self._source = None
            self._say(FactsState.NOT_HEARD, str(error))

    async def _leave(self) -> None:
        """Hear the engine no more; `_position` says up to where it was heard."""
        following, self._following = self._following, None
        if following is not None:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)
        if self._feed is not None:
            self._position = self._feed.position
        self._feed = self._source = None

    def _take(self, events: Sequence[KvEvent]) -> None:
        assert self._mirror is not None
        self._mirror.note(events)

    def _lose(self, why: Loss) -> None:
        self._metrics.kv_losses.labels(why).inc()
        self._log.warning(
            "KV events lost",
            once_a_minute=f"kv lost {self._of.engine}",
            engine=self._of.engine,
            why=why,
        )
        self._forget()

    def _forget(self) -> None:
        """Nothing that was heard counts any more."""
        assert self._mirror is not None
        self._mirror.forget()
        self._position = self._unconfirmed_ms = None
        self._cleared = True

    @property
    def _is_unconfirmed(self) -> bool:
        """Whether what is known may be of another life of the engine."""
        return self._unconfirmed_ms is not None and not (self._feed and self._feed.caught_up)

    async def _restored(self, vocabulary: TokenizerVocabulary) -> BlockMirror:
        """A mirror as the agent before this one kept it, or an empty one."""
        of = self._of
        mirror = BlockMirror(of.base_model, vocabulary.revision, vocabulary)
        if self._kept_at is None:
            return mirror
        try:
            kept = read_mirror(self._kept_at, of.engine, self._kept_as)
        except WireError as error:
            self._log.warning("mirror not read", engine=of.engine, cause=str(error))
            return mirror
        if kept is not None:
            self._position, saved = kept
            blocks = iter(saved)
            while some := list(islice(blocks, RESTORED_AT_ONCE)):
                mirror.restore(some)
                await asyncio.sleep(0)
            self._log.info("mirror read", engine=of.engine, blocks=len(mirror))
        return mirror

    def _keep(self, *, every_ms: float) -> None:
        """Write the file, if something was heard since it was written, and that is long ago."""
        position = self._feed.position if self._feed else self._position
        now_ms = self._clock.now_ms()
        if self._kept_at is None or self._mirror is None or position in (None, self._kept):
            return
        if self._is_unconfirmed or now_ms < self._kept_ms + every_ms:
            return
        assert position is not None
        self._kept, self._kept_ms = position, now_ms
        saved = list(self._mirror.saved())
        try:
            write_mirror(self._kept_at, self._of.engine, self._kept_as, position, saved)
        except OSError as error:
            self._log.warning("mirror not kept", once_a_minute="keep", cause=str(error))

    @property
    def _kept_as(self) -> str:
        return f"{self._of.base_model} {self._revision}"

    def _count(self, mirror: BlockMirror) -> None:
        for why, count in (mirror.uncredited - self._counted).items():
            self._metrics.kv_uncredited.labels(why).inc(count)
            self._counted[why] += count
        if self._feed is not None:
            malformed = self._feed.malformed
            self._metrics.kv_malformed.inc(malformed - self._malformed)
            self._malformed = malformed

    def _say(self, state: FactsState, detail: str = "") -> None:
        if state is not self._state:
            told = self._log.info if state is FactsState.TOLD else self._log.warning
            told("facts", engine=self._of.engine, state=state, detail=detail)
        self._state, self.detail = state, detail
