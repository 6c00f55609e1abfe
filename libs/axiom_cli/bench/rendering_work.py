"""What `axiom bench decide` measures beside decisions: text of requests, in a process of its own.

`python -m axiom_cli.bench.rendering_work` prints one JSON object: microseconds from the members of
a body to normalised text, for chats of 20 messages by a template in the style of ChatML, and for
plain prompts.
"""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import Any

from axiom_cli.bench.prefix_facts import write_model
from axiom_common.model.ids import BASE
from axiom_common.model.prefix import PromptText
from axiom_gateway.openai_requests import Endpoint, parse
from axiom_gateway.prompt_text import PromptTexts
from axiom_gateway.settings import PromptSettings

MESSAGES = 20
TIMED = 2_000
WARM = 50
BASE_MODEL = "base"
_WORDS = "What is due within thirty days is due. "
_OTHER_WORDS = "Was bis Köln fällig wird, 你好. "


def measure(timed: int) -> dict[str, dict[str, float]]:
    """Of each kind of request, p50 and p99 in microseconds."""
    with tempfile.TemporaryDirectory() as name:
        texts = _texts(Path(name))
    requests: dict[str, tuple[Endpoint, dict[str, Any]]] = {
        "chat_10kB": (Endpoint.CHAT, _chat(_WORDS, 10 << 10)),
        "chat_128kB": (Endpoint.CHAT, _chat(_WORDS, 128 << 10)),
        "chat_128kB_not_ascii": (Endpoint.CHAT, _chat(_OTHER_WORDS, 128 << 10)),
        "prompt_128kB": (Endpoint.COMPLETIONS, {"prompt": _filled(_WORDS, 128 << 10)}),
        "prompt_2000_tokens": (Endpoint.COMPLETIONS, {"prompt": [n % 200 for n in range(2000)]}),
    }
    return {name: _timed(texts, *request, timed) for name, request in requests.items()}


def _texts(folder: Path) -> PromptTexts:
    write_model(folder)
    return PromptTexts([PromptSettings(base_model=BASE_MODEL, tokenizer=folder)])


def _chat(words: str, size: int) -> dict[str, Any]:
    said = _filled(words, size // MESSAGES)
    roles = ("user", "assistant")
    return {"messages": [{"role": roles[n % 2], "content": said} for n in range(MESSAGES)]}


def _filled(words: str, size: int) -> str:
    return words * (size // len(words.encode()))


def _timed(
    texts: PromptTexts, endpoint: Endpoint, body: dict[str, Any], timed: int
) -> dict[str, float]:
    members = parse(endpoint, json.dumps({"model": "m", **body}).encode()).members
    took = []
    for _ in range(WARM + timed):
        began = time.perf_counter_ns()
        told = texts.text_of(endpoint, BASE_MODEL, BASE, members)
        took.append((time.perf_counter_ns() - began) / 1e3)
        assert isinstance(told, PromptText), told
    took = sorted(took[WARM:])
    return {"p50": took[len(took) // 2], "p99": took[len(took) * 99 // 100]}


if __name__ == "__main__":
    print(json.dumps(measure(TIMED)))
