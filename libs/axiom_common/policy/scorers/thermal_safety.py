"""Thermal safety: 1 at full clocks, less while heat or power holds the clocks down.

    reason              bit   slow-down
    hw-slowdown           8     2.0      the clocks are cut by half or more
    sw-thermal           32     1.25
    hw-thermal           64     2.0
    power-brake         128     2.0

Other bits (idle, application clocks, power cap, sync boost) are normal life and do not count. Short
false alarms are common, so a reason counts only once it is sustained, and goes on counting until it
was gone for a while. Each reason has its own memory:

    clear --stood SUSTAINED_MS--> in force --gone LEAVE_MS--> clear

How long a reason has stood is what the agent counted over its own samples. Where it does not say,
the reader counts from when it was told, and waits longer: what ended meanwhile may be on its way.
A mask that is not known changes nothing, for `UNKNOWN_MS`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from axiom_common.model.engine import GpuState

SLOWDOWN_BY_BIT = {8: 2.0, 32: 1.25, 64: 2.0, 128: 2.0}
COUNTING_BITS = sum(SLOWDOWN_BY_BIT)
SUSTAINED_MS = 250.0
"""A beat. An agent samples twice as often: a flag in one sample, or in two, has not stood it."""
UNTOLD_MS = 1_000.0
LEAVE_MS = 10_000.0
UNKNOWN_MS = 30_000.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ThermalMemory:
    """What the readings so far say of the counting reasons of an engine's GPUs, the worst GPU each.

    `standing`: (bit, since when) in the last reading, by the reader's clock. `in_force`: (bit, when
    it was last known to stand). `unknown`: the last reading did not say.
    """

    standing: tuple[tuple[int, float], ...] = ()
    in_force: tuple[tuple[int, float], ...] = ()
    unknown: bool = False

    def after(
        self, gpus: tuple[GpuState, ...], *, told_ms: float, heard_ms: float
    ) -> ThermalMemory:
        """The memory after a reading that was told at `told_ms` and still stood when its node was
        last heard. The same reading may be applied again when it has stood longer."""
        readings = [gpu for gpu in gpus if gpu.throttle is not None]
        if not readings:
            return replace(self, standing=(), unknown=True)
        if self == _CLEAR and not any((gpu.throttle or 0) & COUNTING_BITS for gpu in readings):
            # Nothing stood, nothing stands: nearly always.
            return self
        heard_ms = max(heard_ms, told_ms)
        since = dict(self.standing)
        in_force = {bit: at_ms for bit, at_ms in self.in_force if self._holds(bit, told_ms)}
        standing: dict[int, float] = {}
        for bit in SLOWDOWN_BY_BIT:
            stood_ms = [_stood_ms(gpu, bit) for gpu in readings if (gpu.throttle or 0) & bit]
            if not stood_ms:
                continue
            standing[bit] = since.get(bit, told_ms)
            sustained = max(stood_ms) >= SUSTAINED_MS or heard_ms - standing[bit] >= UNTOLD_MS
            if sustained or bit in in_force:
                in_force[bit] = heard_ms
        return ThermalMemory(standing=tuple(standing.items()), in_force=tuple(in_force.items()))

    def slowdown(self, now_ms: float) -> float:
        """The factor, at least 1, by which the reasons in force slow the engine down."""
        factors = (SLOWDOWN_BY_BIT[bit] for bit, _ in self.in_force if self._holds(bit, now_ms))
        return max(factors, default=1.0)

    def _holds(self, bit: int, now_ms: float) -> bool:
        """Whether the reason is in force: only one that is known to be gone leaves soon."""
        stood_ms = dict(self.in_force).get(bit)
        if stood_ms is None:
            return False
        is_gone = not self.unknown and bit not in dict(self.standing)
        return now_ms - stood_ms < (LEAVE_MS if is_gone else UNKNOWN_MS)


_CLEAR = ThermalMemory()


def thermal_safety(slowdown: float) -> float:
    """The score in (0, 1]: the share of the full clocks that is left; 1 while nothing is known."""
    return 1.0 / slowdown


def sustained_bits(gpu: GpuState) -> int:
    """The counting reasons that have stood long enough to count, by the agent's own samples."""
    return sum(bit for bit in SLOWDOWN_BY_BIT if _stood_ms(gpu, bit) >= SUSTAINED_MS)


def _stood_ms(gpu: GpuState, bit: int) -> float:
    return dict(gpu.throttled_ms).get(bit, 0.0)
