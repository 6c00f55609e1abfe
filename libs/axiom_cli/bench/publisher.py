"""One process that is all published nodes to the bus: `python -m axiom_cli.bench.publisher FILE`.

It tells of each node as often as an agent does, answers resyncs, and writes what it did into its
folder: `sent.json` (counts so far), `loads.jsonl` (when it told of which load at the probe nodes).
Once there is a file `quiet` it changes no residency any more, says in `truth.json` what stands, and
beats on.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import msgspec

from axiom_cli.bench.published_nodes import PublishedNode
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_connection import NatsConnection
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import UnavailableError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.ports.bus import Bus
from axiom_common.ports.clock import Clock
from axiom_common.runtime.lifecycle import run_process
from axiom_common.wire import subjects
from axiom_common.wire.reports import BEAT_MS, FULL_EVERY_MS

FULL_EVERY_BEATS = round(FULL_EVERY_MS / BEAT_MS)
GPUS_EVERY_BEATS = 4
USE_SHARE = 0.02
"""Of all beats: those that tell of another LRU order."""
LOADS_PER_S = 0.1
"""Of each node, and of each probe node:"""
PROBE_LOADS_PER_S = 2.0
RATES = {
    "beats_per_s": 1e3 / BEAT_MS,
    "fulls_per_s": 1e3 / BEAT_MS / FULL_EVERY_BEATS,
    "gpu_readings_per_s": 1e3 / BEAT_MS / GPUS_EVERY_BEATS,
    "order_changes_per_s": 1e3 / BEAT_MS * USE_SHARE,
    "loads_per_s": LOADS_PER_S,
    "loads_per_s_of_probes": PROBE_LOADS_PER_S,
}
"""Of each node, for those who read the figures."""
START_MS = 1_000.0
TICK_MS = 2.0
WRITE_EVERY_MS = 250.0
SENT, LOADS, QUIET, TRUTH = "sent.json", "loads.jsonl", "quiet", "truth.json"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What to publish: `nodes` by name, the first `probes` of which are measured."""

    region: str
    nats_url: str
    folder: str
    nodes: list[str]
    probes: int
    seed: int = 1


class Sent(msgspec.Struct, kw_only=True):
    """Counts so far, at `at_ms` on the clock of all processes of this host. `late_ms`: the most
    that the publisher was behind."""

    at_ms: float = 0.0
    messages: int = 0
    bytes: int = 0
    beats: int = 0
    fulls: int = 0
    loads: int = 0
    resyncs: int = 0
    refused: int = 0
    late_ms: float = 0.0


class Load(msgspec.Struct, frozen=True):
    """A probe node's load, and when it was told."""

    node: str
    adapter: str
    at_ms: float


@dataclass(slots=True)
class _Publisher:
    settings: Settings
    bus: Bus
    clock: Clock
    nodes: list[PublishedNode]
    random: Random
    sent: Sent = field(default_factory=Sent)
    lacking: set[str] = field(default_factory=set)
    loads: list[Load] = field(default_factory=list)
    quiet: bool = False

    async def run(self) -> None:
        """Tell of every node whole, then once a beat, spread over it, for ever."""
        for node in self.nodes:
            await self._publish(node, node.full())
            await self.clock.sleep_ms(START_MS / len(self.nodes))
        began_ms = written_ms = self.clock.now_ms()
        done = 0
        count = len(self.nodes)
        while True:
            await self.clock.sleep_ms(TICK_MS)
            now_ms = self.clock.now_ms()
            due = int((now_ms - began_ms) / BEAT_MS * count)
            self.sent.late_ms = max(self.sent.late_ms, (due - done) / count * BEAT_MS)
            while done < due:
                await self._tell(done // count, done % count)
                done += 1
            if now_ms - written_ms >= WRITE_EVERY_MS:
                written_ms = now_ms
                self._write(now_ms)

    async def asked(self, subject: str, payload: bytes) -> None:
        """Somebody lacks a node."""
        del payload
        self.sent.resyncs += 1
        self.lacking.add(subject.rpartition(".")[2])

    async def _tell(self, turn: int, number: int) -> None:
        node = self.nodes[number]
        if (turn + number) % FULL_EVERY_BEATS == 0 or node.name in self.lacking:
            self.lacking.discard(node.name)
            self.sent.fulls += 1
            await self._publish(node, node.full())
            return
        rate = PROBE_LOADS_PER_S if number < self.settings.probes else LOADS_PER_S
        if not self.quiet and self.random.random() < rate * BEAT_MS / 1e3:
            at_ms = self.clock.now_ms()
            adapter, delta = node.load()
            self.sent.loads += 1
            if number < self.settings.probes:
                self.loads.append(Load(node.name, adapter, at_ms))
            await self._publish(node, delta)
        self.sent.beats += 1
        use = not self.quiet and self.random.random() < USE_SHARE
        gpus = (turn + number) % GPUS_EVERY_BEATS == 0
        await self._publish(node, node.beat(gpus=gpus, use=use))

    async def _publish(self, node: PublishedNode, payload: bytes) -> None:
        try:
            await self.bus.publish(
                subjects.node_report(RegionId(self.settings.region), node.name), payload
            )
        except UnavailableError:
            self.sent.refused += 1
            return
        self.sent.messages += 1
        self.sent.bytes += len(payload)

    def _write(self, now_ms: float) -> None:
        folder = Path(self.settings.folder)
        self.sent.at_ms = now_ms
        _replace(folder / SENT, msgspec.json.encode(self.sent))
        loads, self.loads = self.loads, []
        with (folder / LOADS).open("ab") as file:
            file.writelines(msgspec.json.encode(load) + b"\n" for load in loads)
        if not self.quiet and (folder / QUIET).exists():
            self.quiet = True
            truth = {node.name: node.truth() for node in self.nodes}
            _replace(folder / TRUTH, msgspec.json.encode(truth))


def _replace(path: Path, content: bytes) -> None:
    """Whole or not at all, for who reads it."""
    new = path.with_suffix(".new")
    new.write_bytes(content)
    new.rename(path)


async def _publish_all(settings: Settings, group: asyncio.TaskGroup, stop: asyncio.Event) -> None:
    clock = SystemClock()
    connection = NatsConnection(settings.nats_url, name="publisher", clock=clock)
    await connection.start(group)
    bus = NatsBus(connection)
    random = Random(settings.seed)
    region = RegionId(settings.region)
    nodes = [PublishedNode(region, NodeId(name), random) for name in settings.nodes]
    publisher = _Publisher(settings, bus, clock, nodes, random)
    await bus.subscribe(subjects.node_resync(region, NodeId("*")), publisher.asked)
    group.create_task(publisher.run(), name="publish")
    await stop.wait()
    await bus.close()
    await connection.close()


def main() -> None:
    """Entry point of the process."""
    settings = msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Settings)
    run_process(lambda group, stop: _publish_all(settings, group, stop))


if __name__ == "__main__":
    main()
