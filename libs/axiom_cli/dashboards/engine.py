"""One engine or all: its load, its slots, its answers to its agent, and its heat."""

from __future__ import annotations

from axiom_cli.dashboards.layout import (
    CELSIUS,
    COUNT,
    RATE,
    SECONDS,
    SHARE,
    WATTS,
    YES_NO,
    Board,
    graph,
    number,
)
from axiom_cli.dashboards.queries import (
    ENGINE,
    grown,
    highest,
    now,
    per_engine,
    quantile,
    rate,
    slots_taken,
    total,
)
from axiom_common.runtime.metric_names import NodeAgent

_NOW = (
    number(
        "Not ready",
        "Engines that do not serve, by their agents' last poll. Normal: 0.",
        COUNT,
        (
            f"count by (region) ({now(NodeAgent.ENGINE_READY, ENGINE)}) - "
            f"{total(now(NodeAgent.ENGINE_READY, ENGINE))}",
            "{{region}}",
        ),
        bad_above=1,
    ),
    number(
        "Throttled",
        "Engines whose GPU clocks are held down by heat or power. Each takes more time for every "
        "token; decisions count that in.",
        COUNT,
        (
            f"sum by (region) ({highest(now(NodeAgent.THROTTLED, ENGINE), 'engine')})",
            "{{region}}",
        ),
        bad_above=1,
    ),
    number(
        "Hottest GPU",
        "The hottest GPU of these engines. At 90 °C and throttled, an engine gets no requests.",
        CELSIUS,
        (highest(now(NodeAgent.TEMPERATURE, ENGINE)), "{{region}}"),
        bad_above=85,
    ),
    number(
        "GPUs lost",
        "GPUs that fell off the bus or were unplugged, on all hosts of the region. Normal: 0.",
        COUNT,
        (total(now(NodeAgent.LOST_GPUS)), "{{region}}"),
        bad_above=1,
    ),
    number(
        "Fullest KV cache",
        "The highest share of KV blocks that is taken. Near 100 % requests are preempted.",
        SHARE,
        (highest(now(NodeAgent.KV_USAGE, ENGINE)), "{{region}}"),
        bad_above=0.95,
    ),
    number(
        "Waiting in engines",
        "Requests that wait in the engines' own queues. Gateways hold back before that grows.",
        COUNT,
        (total(now(NodeAgent.ENGINE_WAITING, ENGINE)), "{{region}}"),
        bad_above=64,
    ),
)

_LOAD = (
    graph(
        "Requests running",
        "Requests that each engine runs, as it tells itself.",
        COUNT,
        (total(now(NodeAgent.ENGINE_RUNNING, ENGINE), "engine"), "{{engine}}"),
    ),
    graph(
        "Requests waiting",
        "Requests in each engine's own queue. Lasting ones: it is saturated, or others send to it "
        "past the gateways.",
        COUNT,
        (total(now(NodeAgent.ENGINE_WAITING, ENGINE), "engine"), "{{engine}}"),
    ),
    graph(
        "KV cache taken",
        "Share of KV blocks in use. Above 90 % an engine is rated lower.",
        SHARE,
        (highest(now(NodeAgent.KV_USAGE, ENGINE), "engine"), "{{engine}}"),
        highest=1,
    ),
    graph(
        "Slots taken",
        "Adapters in HBM over the slots for them. Full and still loading: see the adapters.",
        SHARE,
        (slots_taken("engine"), "{{engine}}"),
        highest=1,
    ),
    graph(
        "Poll time, 95 %",
        "How long an engine takes to answer its agent's poll. An engine that hangs shows here "
        "first.",
        SECONDS,
        (quantile(0.95, NodeAgent.POLL_DURATION, "engine", matchers=(ENGINE,)), "{{engine}}"),
    ),
    graph(
        "Polls that failed, restarts",
        "Polls that an engine did not answer, per second, and new processes seen of it in 10 "
        "minutes. Normal: 0.",
        RATE,
        (per_engine(total(rate(NodeAgent.POLL_FAILURES, ENGINE), "engine")), "{{engine}} failed"),
        (per_engine(total(grown(NodeAgent.RESTARTS, "10m", ENGINE), "engine")), "{{engine}} new"),
    ),
)

_HEAT = (
    graph(
        "Temperature",
        "The hottest GPU of each engine.",
        CELSIUS,
        (highest(now(NodeAgent.TEMPERATURE, ENGINE), "engine"), "{{engine}}"),
    ),
    graph(
        "Throttled, by reason",
        "Whether this holds a GPU's clocks down, for a beat or longer. hw-thermal and hw-slowdown: "
        "cooling. power-brake: the host's power supply. sw-thermal: the driver's own, mild.",
        YES_NO,
        (
            highest(now(NodeAgent.THROTTLED, ENGINE), "engine", "reason"),
            "{{engine}} {{reason}}",
        ),
        highest=1,
    ),
    graph(
        "Power",
        "What the GPUs of each engine take together.",
        WATTS,
        (total(now(NodeAgent.POWER, ENGINE), "engine"), "{{engine}}"),
    ),
)

BOARD = Board(
    uid="axiom-engine",
    title="Axiom: engine and heat",
    about="One engine or all: load, slots, answers to its agent, and the heat of its GPUs.",
    rows=(("Now", _NOW), ("Load", _LOAD), ("Heat", _HEAT)),
    by_engine=True,
)
