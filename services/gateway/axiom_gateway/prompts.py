"""What decisions know of a request's text, and what its answer tells of the engine's cache.

The text is made once for a request, and only if some engine may hold something of it. Of an engine
whose agent tells nothing, a prompt that it begins to answer is taken for held from then on, until
the answer's own count says that less was.
"""

from __future__ import annotations

import numpy as np

from axiom_common.model.outcome import Outcome
from axiom_common.model.prefix import Untold, linked, prefix_bytes
from axiom_common.policy.fleet import Prompt
from axiom_common.ports.clock import Clock
from axiom_common.state.predicted_facts import SLACK_TOKENS
from axiom_gateway.catalog import Target
from axiom_gateway.job import Job
from axiom_gateway.metrics import GatewayMetrics
from axiom_gateway.openai_requests import BYTES_PER_TOKEN, ParsedRequest
from axiom_gateway.prefixes import Prefixes
from axiom_gateway.prompt_text import PromptTexts

PREDICTED_BYTES_MAX = 1 << 20
"""Of one prompt; what lies beyond is not predicted."""
_RATE_SHARE = 0.1
"""How much one answer moves the tokens that a byte of text is taken for."""


class Prompts:
    """One for a gateway."""

    def __init__(
        self, texts: PromptTexts, prefixes: Prefixes, clock: Clock, metrics: GatewayMetrics
    ) -> None:
        self._texts = texts
        self._prefixes = prefixes
        self._clock = clock
        self._metrics = metrics
        self._tokens_per_byte: dict[str, float] = {}

    def prompt_of(self, request: ParsedRequest, target: Target) -> Prompt | None:
        """What a decision for the request may look up; None where there is nothing to be known."""
        base_model = target.base_model
        if base_model not in self._texts or not self._prefixes.may_match(base_model):
            return None
        if self._texts.is_short(request.endpoint, base_model, request.members):
            self._metrics.prompt_text(Untold.SHORT)
            return None
        began_ms = self._clock.now_ms()
        text = self._texts.text_of(request.endpoint, base_model, target.adapter, request.members)
        untold = text if isinstance(text, Untold) else None
        self._metrics.prompt_text(untold, self._clock.now_ms() - began_ms)
        if isinstance(text, Untold):
            return None
        # What follows counts, though nobody knows it: by the same rule as all of the prompt.
        whole_bytes = BYTES_PER_TOKEN * request.prompt_tokens
        beyond_bytes = max(0, whole_bytes - len(text.text)) if text.is_cut else 0
        index = self._prefixes.index_of(base_model)
        return Prompt(index, text.seed, text.text, beyond_bytes)

    def begins(self, job: Job) -> None:
        """The engine that the request was sent to begins to answer."""
        engine, prompt = job.engine, job.prompt
        if prompt is not None and engine is not None and self._prefixes.predicts(engine):
            self._prefixes.predict(engine, self._chunks(job.target.base_model, prompt))

    def ended(self, job: Job, outcome: Outcome) -> None:
        """The request came to its end."""
        prompt, matched, usage = job.prompt, outcome.matched_tokens, outcome.usage
        if prompt is None or matched is None or outcome.engine is None:
            return
        base_model, cached = job.target.base_model, usage.cached_tokens
        if usage.prompt_tokens and prompt.text and not prompt.beyond_bytes:
            rate, now = self._rate(base_model), usage.prompt_tokens / len(prompt.text)
            self._tokens_per_byte[base_model] = rate + _RATE_SHARE * (now - rate)
        if cached is None:
            return
        self._metrics.matched(matched, cached)
        if matched > cached + SLACK_TOKENS and self._prefixes.predicts(outcome.engine):
            chunks = self._chunks(base_model, prompt)
            deeper = [link for link, tokens in chunks if tokens > cached]
            self._prefixes.disprove(outcome.engine, deeper)

    def _rate(self, base_model: str) -> float:
        return self._tokens_per_byte.get(base_model, 1.0 / BYTES_PER_TOKEN)

    def _chunks(self, base_model: str, prompt: Prompt) -> list[tuple[int, int]]:
        """Links of a prompt, and the tokens up to each by what answers have told so far."""
        links = linked(prompt.seed, prompt.text[:PREDICTED_BYTES_MAX])
        ends = prefix_bytes(np.arange(1, len(links) + 1)) * self._rate(base_model)
        return list(zip(links, ends.astype(np.uint32).tolist(), strict=True))
