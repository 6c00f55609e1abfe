"""The thread in which all engines' KV caches are mirrored, beside the agent's own loop.

To fold a prompt of a thousand blocks takes 40 ms, and a restored mirror takes seconds: reports and
ensures don't wait for that. One thread is enough, for Python runs one at a time, and a tokenizer is
not for several. What is too much for it waits in ZeroMQ, whose queues are bounded; what they drop
is asked for again, or withdrawn.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary, read_vocabulary
from axiom_common.model.ids import EngineId
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import Owner
from axiom_common.runtime.logging import Log
from axiom_node_agent.facts import FactCut
from axiom_node_agent.kv_mirror import KvMirror, Mirrored
from axiom_node_agent.metrics import AgentMetrics

SWITCH_S = 0.001
"""So long at most the agent's loop waits for a thread that computes; 5 ms by default."""

T = TypeVar("T")


class MirrorThread:
    """Starts with the first engine. Files go into `folder`, None for none."""

    def __init__(self, folder: Path | None, clock: Clock, metrics: AgentMetrics, log: Log) -> None:
        self.mirrors: dict[EngineId, KvMirror] = {}
        self._folder = folder
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop = asyncio.Event()
        self._ended: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._tasks: dict[EngineId, asyncio.Task[None]] = {}
        self._owner: Owner
        self._vocabularies: WeakValueDictionary[Path, TokenizerVocabulary] = WeakValueDictionary()

    async def add(self, of: Mirrored) -> None:
        """Mirror an engine from now on."""
        if self._loop is None:
            await self._start()
        await self._there(self._add(of))

    async def remove(self, engine: EngineId) -> None:
        """Mirror it no more; its file is written."""
        await self._there(self._remove(engine))

    async def cut(self, engine: EngineId, *, anew: bool, whole: bool) -> FactCut | None:
        """What `KvMirror.cut` says."""
        return await self._there(self._cut(engine, anew=anew, whole=whole))

    async def ended(self) -> None:
        """Wait until the thread ends, and raise what it failed of."""
        await asyncio.shield(asyncio.wrap_future(self._ended))

    async def stop(self) -> None:
        """End all; files are written."""
        if self._loop is not None and not self._ended.done():
            self._loop.call_soon_threadsafe(self._stop.set)
            await asyncio.wrap_future(self._ended)

    async def _start(self) -> None:
        sys.setswitchinterval(SWITCH_S)
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        # A daemon: a file system that hangs holds up no process that ends.
        threading.Thread(target=self._work, args=(started,), name="mirrors", daemon=True).start()
        await asyncio.wrap_future(started)

    def _work(self, started: concurrent.futures.Future[None]) -> None:
        try:
            asyncio.run(self._run(started))
        except BaseException as error:  # noqa: BLE001  told to who waits for the end
            self._ended.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _run(self, started: concurrent.futures.Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        async with asyncio.TaskGroup() as group:
            self._owner = group
            started.set_result(None)
            await self._stop.wait()
            for engine in list(self._tasks):
                await self._remove(engine)

    async def _there(self, work: Coroutine[Any, Any, T]) -> T:
        assert self._loop is not None
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    async def _add(self, of: Mirrored) -> None:
        kept_at = self._folder / f"{of.engine}.mirror" if self._folder else None
        mirror = KvMirror(of, self._vocabulary, kept_at, self._clock, self._metrics, self._log)
        self.mirrors[of.engine] = mirror
        job = mirror.run(self._owner)
        self._tasks[of.engine] = self._owner.create_task(job, name=f"mirror {of.engine}")

    async def _remove(self, engine: EngineId) -> None:
        task = self._tasks.pop(engine)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        del self.mirrors[engine]

    async def _cut(self, engine: EngineId, *, anew: bool, whole: bool) -> FactCut | None:
        mirror = self.mirrors.get(engine)
        return None if mirror is None else mirror.cut(anew=anew, whole=whole)

    def _vocabulary(self, path: Path) -> TokenizerVocabulary:
        """Engines with one tokenizer share it: it is large."""
        vocabulary = self._vocabularies.get(path)
        if vocabulary is None:
            vocabulary = self._vocabularies[path] = read_vocabulary(path)
        return vocabulary
