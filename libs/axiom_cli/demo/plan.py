"""What the demo sends and breaks, and when. Pure: seconds and a seed in, bodies out.

      warm-up          measured window
    |---------|------------------|------------------|
    cold fleet         popularity flips; one        end
                       engine is killed, and comes
                       back empty soon after

Load: adapters outnumber the fleet's slots by half, and the request rate is less than half of what
four engines of the simulated kind can do: slots and not raw speed are what runs out, also while one
engine is away. Outputs are cut short, so that client, gateway and engines fit on two cores without
touching what is measured.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from axiom_cli.demo.client import TimedBody
from axiom_sim.workload.replay import ReplayRequest, ReplayShape, popularity, replay
from axiom_sim.workload.traces import azure_slice, servegen_slice

WARM_UP_MS_MAX = 6_000.0
WARM_UP_SHARE = 0.4
"""The warm-up is this share of the window, up to the limit above."""
RATE_RPS = 8.0
PROMPT_TOKENS_MAX = 3_000
OUTPUT_TOKENS_MAX = 96
SYSTEM_TOKENS = 256
"""Each adapter's users share a system prompt of this length."""
DOWN_MS_MAX = 4_000.0
DOWN_SHARE = 0.25
"""The killed engine stays away for this share of half the window, up to the limit above."""
BYTES_A_TOKEN = 4
WORDS = ("please", "explain", "why", "this", "order", "was", "late", "and", "what", "we", "owe")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoPlan:
    """One run, the same for every policy; times are ms from the first request."""

    bodies: tuple[TimedBody, ...]
    warm_up_ms: float
    flip_ms: float
    back_ms: float
    end_ms: float


def demo_plan(adapters: Sequence[str], *, seconds: float, seed: int) -> DemoPlan:
    """The requests of a run whose measured window lasts `seconds`."""
    window_ms = seconds * 1e3
    warm_up_ms = min(WARM_UP_MS_MAX, WARM_UP_SHARE * window_ms)
    flip_ms = warm_up_ms + window_ms / 2
    rng = Random(seed)
    requests = replay(
        azure_slice(),
        popularity(servegen_slice(), len(adapters)),
        ReplayShape(
            duration_ms=warm_up_ms + window_ms,
            rate_rps=RATE_RPS,
            prompt_tokens_max=PROMPT_TOKENS_MAX,
            output_tokens_max=OUTPUT_TOKENS_MAX,
            flip_ms=(flip_ms,),
        ),
        rng,
    )
    return DemoPlan(
        bodies=tuple(_body(request, adapters[request.adapter], rng) for request in requests),
        warm_up_ms=warm_up_ms,
        flip_ms=flip_ms,
        back_ms=flip_ms + min(DOWN_MS_MAX, DOWN_SHARE * window_ms / 2),
        end_ms=warm_up_ms + window_ms,
    )


def _body(request: ReplayRequest, adapter: str, rng: Random) -> TimedBody:
    """A streamed chat: the adapter's system prompt, then a question nobody asked before."""
    system_tokens = min(SYSTEM_TOKENS, request.prompt_tokens // 2)
    question = f"{rng.getrandbits(64):016x} "
    message = {
        "model": adapter,
        "messages": [
            {"role": "system", "content": _text(f"You are {adapter}.", system_tokens)},
            {"role": "user", "content": _text(question, request.prompt_tokens - system_tokens)},
        ],
        "max_tokens": request.output_tokens,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    return TimedBody(at_ms=request.at_ms, body=json.dumps(message).encode())


def _text(start: str, tokens: int) -> str:
    """`tokens` tokens of text that begin with `start`."""
    filler = " ".join(WORDS) + " "
    size = tokens * BYTES_A_TOKEN
    return (start + filler * (size // len(filler) + 1))[: max(size, len(start))]
