"""KV event messages: both shapes, what is left out, and a real vLLM's messages end to end."""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.kv_parts import FactReader

from axiom_common.drivers.kv_event_feed import KvEventSource, sources_of
from axiom_common.drivers.kv_event_messages import decode
from axiom_common.drivers.tokenizer_vocabulary import TokenizerVocabulary
from axiom_common.errors import WireError
from axiom_common.model.ids import BASE, EngineAdapter
from axiom_common.model.kv_events import BlocksCleared, BlocksRemoved, BlocksStored
from axiom_common.model.prefix import PrefixScope, Uncredited, chain
from axiom_common.state.block_mirror import BlockMirror

RECORDED = Path(__file__).parent.parent / "recorded" / "vllm-0.32-kv-events.jsonl.gz"


def test_maps_and_the_older_arrays_say_the_same() -> None:
    maps = [
        {
            "type": "BlockStored",
            "block_hashes": [1, 2],
            "parent_block_hash": None,
            "token_ids": [5, 6, 7, 8],
            "block_size": 2,
            "lora_id": 1,
            "medium": "GPU",
            "lora_name": "ad0",
            "extra_keys": [["ad0", "salt"], ["ad0"]],
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
            "unheard_of": {},
        },
        {"type": "BlockRemoved", "block_hashes": [b"x" * 32], "medium": "CPU"},
        {"type": "AllBlocksCleared"},
    ]
    arrays = [
        ["BlockStored", [1, 2], None, [5, 6, 7, 8], 2, 1, "GPU", "ad0"],
        ["BlockRemoved", [b"x" * 32], "CPU"],
        ["AllBlocksCleared"],
    ]
    stored, removed, cleared = decode(msgspec.msgpack.encode([1.5, maps, 0]))
    assert stored == BlocksStored(
        hashes=[1, 2],
        parent=None,
        tokens=[5, 6, 7, 8],
        block_size=2,
        medium="GPU",
        adapter="ad0",
        keys=[("ad0", "salt"), ("ad0",)],
        group=0,
        attention="full_attention",
    )
    assert (removed, cleared) == (BlocksRemoved(hashes=[b"x" * 32], medium="CPU"), BlocksCleared())
    older = decode(msgspec.msgpack.encode([1.5, arrays]))
    assert isinstance(older[0], BlocksStored)
    assert (older[0].tokens, older[0].keys) == ([5, 6, 7, 8], None)
    assert older[1:] == (removed, cleared)


def test_an_adapter_without_a_name_is_nobody_s() -> None:
    (stored,) = decode(msgspec.msgpack.encode([1.5, [["BlockStored", [1], None, [5], 1, 3]]]))
    assert isinstance(stored, BlocksStored)
    assert stored.adapter == ""


def test_what_lies_elsewhere_is_on_no_medium_of_the_engine() -> None:
    event = {"type": "BlockStored", "block_hashes": [1], "parent_block_hash": None}
    event |= {"token_ids": [], "block_size": 0, "medium": "CPU", "locality": "REMOTE"}
    (stored,) = decode(msgspec.msgpack.encode([1.5, [event]]))
    assert isinstance(stored, BlocksStored)
    assert stored.medium == "REMOTE"


def recorded() -> list[dict[str, Any]]:
    """A tokenizer; then messages, and requests with what the engine had cached, in order."""
    return [json.loads(line) for line in gzip.decompress(RECORDED.read_bytes()).splitlines()]


def test_a_real_engine_never_had_less_cached_than_its_events_say() -> None:
    """vLLM 0.32 on 96 blocks, two adapters, a salt, conversations, evictions, a cleared cache."""
    tokenizer, *lines = recorded()
    vocabulary = TokenizerVocabulary(json.dumps(tokenizer["tokenizer"]))
    mirror = BlockMirror("tiny", "1", vocabulary)
    facts = FactReader()
    short: Counter[int] = Counter()
    for line in lines:
        if "payload" in line:
            facts.apply(mirror.fold(decode(base64.b64decode(line["payload"]))))
            continue
        scope = PrefixScope(
            base_model="tiny",
            revision="1",
            adapter=EngineAdapter(line["adapter"] or BASE),
            cache_salt=line["salt"],
        )
        credit = facts.credit(chain(scope, vocabulary.normalised(line["text"])))
        short[line["cached_tokens"] - credit] += 1
    assert min(short) >= 0
    # 256 bytes have about 110 of this tokenizer's tokens, a block has 32.
    assert max(short) <= 192
    assert short[0] > sum(short.values()) / 2
    assert set(mirror.uncredited) <= {Uncredited.NOT_TEXT, Uncredited.UNKNOWN_PARENT}


def test_sources_are_where_an_engine_says_or_where_it_was_asked() -> None:
    told = {
        "1": {"endpoint": "tcp://*:5558", "replay_endpoint": None, "topic": "kv"},
        "0": {"endpoint": "tcp://10.0.0.7:5557", "replay_endpoint": "tcp://0.0.0.0:6"},
    }
    assert sources_of(msgspec.json.encode(told), "gpu7") == (
        KvEventSource(endpoint="tcp://10.0.0.7:5557", replay_endpoint="tcp://gpu7:6"),
        KvEventSource(endpoint="tcp://gpu7:5558"),
    )


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b'{"0": 1}', b'{"a": {}}', b'{"0": {}}', b'{"0": {"endpoint": "file:///etc"}}'],
)
def test_sources_that_do_not_read_are_a_wire_error(body: bytes) -> None:
    with pytest.raises(WireError):
        sources_of(body, "gpu7")
