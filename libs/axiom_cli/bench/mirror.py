"""`axiom bench mirror`: what an engine's KV events cost the agent, from message to facts.

The text is Python's own library, whose words a tokenizer meets as it meets people's. Prompts come
in one message each; answers block by block, as engines tell them. Figures are of CPU time, and the
least counts, for other work on the same cores only ever adds.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from axiom_cli.machine import commit, machine
from axiom_cli.output import plain_table, print_figures, table_console
from axiom_common.drivers.kv_event_messages import decode
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary, read_vocabulary
from axiom_common.state.block_mirror import BlockMirror

PROMPT_BLOCKS = 125
_TEXT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorBenchOptions:
    """`tokenizer`: a model's folder or its `tokenizer.json`. `blocks`: how many are stored."""

    tokenizer: Path
    blocks: int
    rounds: int
    as_json: bool


def bench_mirror(options: MirrorBenchOptions) -> None:
    """Measure and print. RefusedVocabularyError when the tokenizer gives no exact facts."""
    vocabulary = read_vocabulary(options.tokenizer)
    stored_us = stored_us_block(vocabulary, text(), options.blocks, options.rounds)
    if options.as_json:
        print_figures({"machine": machine(), "commit": commit(), **stored_us})
        return
    table = plain_table("figure", "CPU us a stored block")
    for name, figure in stored_us.items():
        table.add_row(name, f"{figure}")
    table_console().print(table)


def stored_us_block(
    vocabulary: TokenizerVocabulary, told: str, blocks: int, rounds: int
) -> dict[str, float]:
    """CPU us a block of the text, by its size and by what comes in a message; of `blocks` each."""
    tokens, _ = vocabulary.encoded(vocabulary.normalised(told).decode(errors="ignore"))
    figures = {}
    for size in (16, 32):
        for name, together in (("prompts", PROMPT_BLOCKS), ("answers", 1)):
            messages = list(_messages(tokens, size, blocks, together))
            stored = [_stored_us(vocabulary, messages) for _ in range(rounds)]
            figures[f"stored_us_block_{size}_{name}"] = round(min(stored), 1)
    return figures


def _stored_us(vocabulary: TokenizerVocabulary, messages: Sequence[bytes]) -> float:
    mirror = BlockMirror("bench", "1", vocabulary)
    start = time.process_time()
    for message in messages:
        mirror.fold(decode(message))
    return (time.process_time() - start) / len(mirror) * 1e6


def text() -> str:
    """Some of the standard library, in order of names."""
    texts, size = [], 0
    for path in sorted(Path(os.__file__).parent.glob("*.py")):
        if size < _TEXT_BYTES:
            texts.append(path.read_text(encoding="utf-8", errors="ignore"))
            size += len(texts[-1])
    return "\n".join(texts)


def _messages(tokens: Sequence[int], size: int, blocks: int, together: int) -> Iterator[bytes]:
    """Prompts of PROMPT_BLOCKS blocks, `together` blocks a message, as vLLM writes them."""
    length = PROMPT_BLOCKS * size
    for prompt in range(blocks // PROMPT_BLOCKS):
        start = prompt * length % (len(tokens) - length)
        for block in range(0, PROMPT_BLOCKS, together):
            first = prompt * PROMPT_BLOCKS + block
            at = start + block * size
            event = {
                "type": "BlockStored",
                "block_hashes": list(range(first, first + together)),
                "parent_block_hash": first - 1 if block else None,
                "token_ids": tokens[at : at + together * size],
                "block_size": size,
                "lora_id": None,
                "medium": "GPU",
                "lora_name": None,
                "extra_keys": [None] * together,
                "group_idx": 0,
                "kv_cache_spec_kind": "full_attention",
            }
            yield msgspec.msgpack.encode([0.0, [event], 0])
