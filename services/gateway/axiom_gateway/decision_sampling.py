"""Which requests are told of to those who learn from decisions: all, or a share under load."""

from __future__ import annotations

WINDOW_MS = 1_000.0
_HASH_BITS = 64


class Sampler:
    """At most 2 x `per_s` a second, about `per_s` under load.

    A request is taken or left by the hash of its id alone, so what is taken is a fair sample of the
    moment, and stands for 1 / share requests. Each window begins with the share that would have
    fitted the one before; what is taken beyond that halves it, again and again.
    """

    def __init__(self, per_s: float, now_ms: float) -> None:
        self._per_s = per_s
        self._began_ms = now_ms
        self._offered = 0
        self._begin(1.0)

    def share_of(self, request_hash: int, now_ms: float) -> float:
        """The share by which a request was taken; 0.0: it is left out. `request_hash`: 64 bit."""
        elapsed_ms = now_ms - self._began_ms
        if elapsed_ms >= WINDOW_MS:
            offered_per_s = self._offered / elapsed_ms * 1e3
            self._began_ms, self._offered = now_ms, 0
            self._begin(min(1.0, self._per_s / max(offered_per_s, 1e-9)))
        self._offered += 1
        share = self._share
        if request_hash >= self._below:
            return 0.0
        self._left -= 1.0
        if self._left < 1.0:
            self._budget /= 2.0
            self._set(share / 2.0 if self._budget >= 1.0 else 0.0)
        return share

    def _begin(self, share: float) -> None:
        self._budget = max(1.0, self._per_s)
        self._set(share)

    def _set(self, share: float) -> None:
        self._share = share
        self._left = self._budget
        self._below = int(share * (1 << _HASH_BITS))
