"""Keeps one engine's extension heard: listens, asks for what was lost, notes its silence."""

from __future__ import annotations

import asyncio

from axiom_common.errors import EngineCallError, UnavailableError
from axiom_common.ports.clock import Clock
from axiom_common.ports.engine_extension import EngineExtension
from axiom_common.runtime.logging import Log
from axiom_node_agent.state import EngineBook

TICK_MS = 100.0
ASK_PAUSE_MS = 1_000.0
"""Between two questions for what was not heard."""
CHECK_MS = 5_000.0
"""How often the whole is asked for when nothing seems lost, or when the extension is off."""


class ExtensionEar:
    """Of one engine. The book hears each word at once; a silence ends within a tick once the
    extension takes it for one."""

    def __init__(
        self, book: EngineBook, extension: EngineExtension, clock: Clock, log: Log
    ) -> None:
        self._book = book
        self._extension = extension
        self._clock = clock
        self._log = log
        self._id = book.declared.engine
        self._asked_ms: float | None = None
        self._listens = False

    async def run(self) -> None:
        """Hear until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._ask_when_due(), name=f"ask extension {self._id}")
                while True:
                    self._listen()
                    self._look()
                    await self._clock.sleep_ms(TICK_MS)
        finally:
            await self._extension.close()

    def forget(self) -> None:
        """The engine's process is gone, and all that it said with it."""
        self._extension.forget()
        self._asked_ms = None

    def _hear(self) -> None:
        """The extension told something. If that makes no word yet, the rest is about to come."""
        now_ms = self._clock.now_ms()
        if (word := self._extension.word(now_ms)) is not None:
            self._book.saw_word(word, now_ms)

    def _look(self) -> None:
        """An engine out of reach is silent as a whole: what it said last stands."""
        if self._book.reached:
            now_ms = self._clock.now_ms()
            self._book.saw_word(self._extension.word(now_ms), now_ms)

    def _listen(self) -> None:
        if self._listens:
            return
        try:
            self._extension.open(self._hear)
            self._listens = True
        except OSError as error:
            self._warn("no way to listen to the engine's extension", error)

    async def _ask_when_due(self) -> None:
        while True:
            now_ms = self._clock.now_ms()
            lost = self._extension.needs_whole(now_ms)
            pause_ms = ASK_PAUSE_MS if lost else CHECK_MS
            if self._book.reached and (
                self._asked_ms is None or now_ms - self._asked_ms >= pause_ms
            ):
                self._asked_ms = now_ms
                await self._ask()
            await self._clock.sleep_ms(TICK_MS)

    async def _ask(self) -> None:
        try:
            await self._extension.ask()
        except (UnavailableError, EngineCallError) as error:
            self._warn("the engine's extension does not answer", error)
        else:
            if self._extension.unsupported is not None:
                self._warn("the engine's extension is off", self._extension.unsupported)

    def _warn(self, event: str, cause: object) -> None:
        self._log.warning(
            event, once_a_minute=f"{event} {self._id}", engine=self._id, cause=str(cause)
        )
