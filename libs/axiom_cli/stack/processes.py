"""Child processes under supervision: started, logged, restarted when they die, ended with us.

    start -> up --(dies)--> waiting (backoff) -> up ...
              \\--kill()--> down --restart()--> up
              \\--stop()--> ended

Nothing is restarted silently: each death is an event for the caller to show. A process that dies
again and again right after its start is given up, which fails its `run` and so ends the stack.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from axiom_cli.stack.servers import die_with_parent
from axiom_common.errors import UnavailableError
from axiom_common.ports.clock import Clock

BACKOFF_MS = 200.0
BACKOFF_MS_MAX = 5_000.0
SETTLED_MS = 10_000.0
"""A process that has lived this long starts its next backoff anew."""
QUICK_DEATHS_MAX = 8
STOP_TIMEOUT_MS = 12_000.0
LOG_LINES_SHOWN = 4
LOG_BYTES_READ = 16_384
LAST_WORDS = ("fatal:", "settings:")
"""How a process of Axiom begins the line that says why it ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSpec:
    """What to run. The same `argv` is used for each restart, so its ports stay."""

    name: str
    argv: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessDied:
    """A process ended that was not told to; it is restarted after `restart_in_ms`."""

    name: str
    exit_code: int
    restart_in_ms: float

    def __str__(self) -> str:
        return f"{self.name} died (exit {self.exit_code}), restarted in {self.restart_in_ms:.0f} ms"


class SupervisedProcess:
    """One child. `run` is its supervisor and belongs in a TaskGroup."""

    def __init__(
        self,
        spec: ProcessSpec,
        *,
        log_path: Path,
        environment: Mapping[str, str],
        clock: Clock,
        on_death: Callable[[ProcessDied], None],
    ) -> None:
        self.name = spec.name
        self.log_path = log_path
        self.deaths = 0
        self._spec = spec
        self._environment = environment
        self._clock = clock
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._up = asyncio.Event()
        self._down = asyncio.Event()
        self._down.set()
        self._ended = False

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Keep the process up until `stop`; UnavailableError when it can't be kept up."""
        quick_deaths = 0
        while not self._ended:
            await self._wanted.wait()
            if self._ended:
                return
            started_ms = self._clock.now_ms()
            exit_code = await self._live_once()
            if not self._wanted.is_set() or self._ended:
                continue
            settled = self._clock.now_ms() - started_ms >= SETTLED_MS
            quick_deaths = 0 if settled else quick_deaths + 1
            self.deaths += 1
            if quick_deaths > QUICK_DEATHS_MAX:
                raise UnavailableError(
                    f"{self.name} died {quick_deaths} times in a row: {self.log_end()}"
                )
            wait_ms = min(BACKOFF_MS * 2 ** max(0, quick_deaths - 1), BACKOFF_MS_MAX)
            self._on_death(ProcessDied(name=self.name, exit_code=exit_code, restart_in_ms=wait_ms))
            await self._clock.sleep_ms(wait_ms)

    async def started(self) -> None:
        """Wait until there is a process (it need not serve yet)."""
        await self._up.wait()

    async def kill(self) -> None:
        """SIGKILL, as a crash, and keep it down until `restart`."""
        self._wanted.clear()
        await self._end(signal.SIGKILL)
        await self._down.wait()

    async def restart(self) -> None:
        """Start it again with the same command line, after ending it where it still runs."""
        if self.pid is not None:
            self._wanted.clear()
            await self._end(signal.SIGTERM)
            await self._down.wait()
        self._wanted.set()
        await self._up.wait()

    async def stop(self) -> None:
        """SIGTERM, wait, SIGKILL when that does not help; it stays ended."""
        self._ended = True
        self._wanted.set()
        await self._end(signal.SIGTERM)

    def log_end(self) -> str:
        """Why it ended by its own word, else the last lines of its log; on one line."""
        try:
            with self.log_path.open("rb") as log:
                log.seek(max(0, log.seek(0, 2) - LOG_BYTES_READ))
                lines = log.read().decode(errors="replace").splitlines()
        except OSError:
            lines = []
        told = [line for line in lines if line.startswith(LAST_WORDS)][-1:]
        shown = " | ".join(told or lines[-LOG_LINES_SHOWN:]) or "no output"
        return f"{shown} (log: {self.log_path})"

    async def _live_once(self) -> int:
        with self.log_path.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *self._spec.argv,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(self._environment),
                # A terminal's Ctrl-C must reach this process alone: it ends the others in order.
                start_new_session=True,
                preexec_fn=die_with_parent(),
            )
        self._down.clear()
        self._up.set()
        try:
            return await self._process.wait()
        finally:
            # `run` looks at what is wanted before anybody who waits here goes on.
            self._up.clear()
            self._down.set()

    async def _end(self, number: signal.Signals) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(number)
        # A paused process takes SIGTERM only once it runs again.
        process.send_signal(signal.SIGCONT)
        try:
            async with asyncio.timeout(STOP_TIMEOUT_MS / 1e3):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
