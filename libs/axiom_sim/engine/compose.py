"""What the simulated model answers: how long, with which words, and why it ends there."""

from __future__ import annotations

from dataclasses import dataclass

from axiom_sim.engine.openai_api import Question
from axiom_sim.engine.prompts import Prompt, answer_words, natural_tokens
from axiom_sim.engine.refusals import RefusedError, bad_value


@dataclass(frozen=True, slots=True)
class Composed:
    """`words[i]` is the text of token i; `reason` vLLM's finish reason; `stopped_by` the stop
    string that ended it, None for all other ends."""

    words: list[str]
    reason: str
    stopped_by: str | None


def compose(
    question: Question,
    prompt: Prompt,
    *,
    seed: int,
    max_model_len: int,
    natural_tokens_max: int,
) -> Composed:
    """The whole answer, before it is made to last; refused when it can't be begun.

    It ends by the first of: a stop string, its natural length (unless told to ignore it),
    `max_tokens`, the end of the context.
    """
    room = max_model_len - prompt.tokens
    if room < 1:
        raise prompt_too_long(prompt, max_model_len)
    asked = question.tokens_max
    if asked is not None and asked > max_model_len:
        raise bad_value(
            "max_tokens",
            f"max_tokens={asked} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            asked,
        )
    limit = room if asked is None else min(room, asked)
    natural = limit + 1
    if not question.ignore_eos:
        drawn = natural_tokens(prompt, seed=seed, tokens_max=natural_tokens_max)
        natural = max(drawn, question.tokens_min)
    words = answer_words(prompt, seed=seed, count=min(limit, natural))
    reason = "length" if natural > limit else "stop"
    return _cut_at_stop(Composed(words, reason, None), question.stop)


def prompt_too_long(prompt: Prompt, max_model_len: int) -> RefusedError:
    """400: the prompt alone fills the context."""
    return bad_value(
        "input_tokens",
        f"This model's maximum context length is {max_model_len} tokens. However, "
        f"your prompt contains {prompt.tokens} input tokens, which exceeds this limit even "
        "without any output tokens. Please reduce the length of the input prompt.",
        prompt.tokens,
    )


def _cut_at_stop(whole: Composed, stops: tuple[str, ...]) -> Composed:
    """Tokens up to the one that completes a stop string; the text ends before the string."""
    text = "".join(whole.words)
    found = [(text.index(stop), stop) for stop in stops if stop in text]
    if not found:
        return whole
    end, stop = min(found)
    kept: list[str] = []
    length = 0
    for word in whole.words:
        kept.append(word[: max(0, end - length)])
        length += len(word)
        if length >= end + len(stop):
            break
    return Composed(kept, "stop", stop)
