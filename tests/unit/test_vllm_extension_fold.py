"""What the agent makes of the extension's messages: order, gaps, wholes, restarts, bounds."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from axiom_common.drivers import vllm_extension_fold
from axiom_common.drivers.vllm_extension_fold import SERVER_SILENCE_MS_MAX, ExtensionFold
from axiom_common.drivers.vllm_extension_messages import AdapterEventKind
from axiom_common.errors import WireError
from axiom_common.model.ids import BASE, EngineAdapter

README = Path(__file__).parents[2] / "libs/axiom_vllm/README.md"
A, B = EngineAdapter("a~1"), EngineAdapter("b~1")


def sent(kind: str, seq: int, instance: str, **fields: Any) -> bytes:
    head = {"v": 1, "instance": instance, "seq": seq, "at_ms": 1000.0 + seq, "kind": kind}
    return json.dumps({**head, **fields}).encode()


def residency(seq: int, *, instance: str = "w", **fields: Any) -> bytes:
    empty: dict[str, Any] = {
        "rank": 0,
        "whole": False,
        "hbm_slots": 2,
        "host_slots": 4,
        "slots": [None, None],
        "hbm": [],
        "host": [],
        "pinned": [],
        "names": {},
        "events": [],
    }
    return sent("residency", seq, instance, **(empty | fields))


def requests(seq: int, *, instance: str = "s", whole: bool = False, **counts: int) -> bytes:
    adapters = {
        name.replace("_", "~"): {"in_flight": count, "started": 0, "finished": 0, "aborted": 0}
        for name, count in counts.items()
    }
    return sent("requests", seq, instance, whole=whole, adapters=adapters)


def names(seq: int, *, instance: str = "s", **numbers: int) -> bytes:
    registered = {
        name.replace("_", "~"): {"id": number, "path": f"/{number}"}
        for name, number in numbers.items()
    }
    return sent("names", seq, instance, whole=True, registered=registered)


def whole(fold: ExtensionFold) -> None:
    fold.hear(residency(1, whole=True, hbm=[1], host=[2, 1], names={"1": A, "2": B}), 0.0)
    fold.hear(requests(1, whole=True), 0.0)
    fold.hear(names(2, a_1=1, b_1=2), 0.0)


def test_the_readme_shows_messages_as_they_are_read() -> None:
    blocks = re.findall(r"```json\n(.*?)```", README.read_text(), flags=re.DOTALL)
    fold = ExtensionFold()
    for block in blocks[:3]:
        assert fold.hear(block.encode(), 0.0).changed
    word = fold.word(0.0)
    assert word is not None
    assert word.ranks[0].residency.hbm == ("legal~1", "summaries~4")
    assert word.ranks[0].residency.host == ("(1)", "legal~1", "summaries~4")
    assert word.ranks[0].pinned == {"legal~1"}
    assert word.in_flight == {"summaries~4": 2}
    assert fold.needs_whole(0.0)
    fold.hear_state(blocks[4].encode(), 0.0)
    assert not fold.needs_whole(0.0)
    fold.hear(blocks[3].encode(), 0.0)
    assert (fold.unsupported, fold.word(0.0)) == ("failed: KeyError(3)", None)
    fold.hear_state(blocks[5].encode(), 0.0)
    assert fold.unsupported == "unknown-version: 0.40.1"
    assert len(blocks) == 6


def test_events_carry_names_and_time() -> None:
    fold = ExtensionFold()
    whole(fold)
    events = [{"op": "dropped", "id": 2}, {"op": "loaded", "id": 3, "ms": 9.0}]
    heard = fold.hear(residency(2, host=[1, 3], names={"3": "c~1"}, events=events), 0.0)
    assert [(e.kind, e.adapter, e.took_ms) for e in heard.events] == [
        (AdapterEventKind.DROPPED, B, 0.0),
        (AdapterEventKind.LOADED, "c~1", 9.0),
    ]
    assert heard.events[0].at_ms == 1002.0


def test_what_is_old_changes_nothing() -> None:
    fold = ExtensionFold()
    whole(fold)
    fold.hear(residency(3, whole=True, host=[1], names={"1": A}), 0.0)
    before = fold.word(0.0)
    assert not fold.hear(residency(2, host=[2]), 0.0).changed
    assert not fold.hear(residency(3, host=[2]), 0.0).changed
    assert not fold.hear(requests(2, a_1=5), 0.0).changed
    assert fold.word(0.0) == before


def test_a_gap_asks_for_the_whole_and_keeps_the_order_exact() -> None:
    fold = ExtensionFold()
    whole(fold)
    heard = fold.hear(residency(5, hbm=[2], host=[1, 2]), 0.0)
    assert heard.gap
    assert fold.needs_whole(0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.ranks[0].residency.host == (A, B)
    assert not fold.hear(residency(6, whole=True, host=[1], names={"1": A}), 0.0).gap
    assert not fold.needs_whole(0.0)
    assert fold.hear(requests(9, a_1=1), 0.0).gap
    fold.hear(requests(10, whole=True, a_1=1), 0.0)
    assert fold.needs_whole(0.0), "the names may have changed too"
    fold.hear(names(11, a_1=1), 0.0)
    assert not fold.needs_whole(0.0)


def test_a_whole_after_a_gap_needs_no_question() -> None:
    fold = ExtensionFold()
    whole(fold)
    assert fold.hear(residency(9, whole=True), 0.0).gap
    assert not fold.needs_whole(0.0)


def test_a_new_process_begins_anew() -> None:
    fold = ExtensionFold()
    whole(fold)
    heard = fold.hear(residency(1, instance="w2", host=[1]), 0.0)
    assert heard.gap
    assert fold.needs_whole(0.0)
    fold.hear(residency(2, instance="w2", whole=True, host=[]), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.ranks[0].residency.host == ()


def test_counts_of_several_servers_add_up_and_leave_with_them() -> None:
    fold = ExtensionFold()
    whole(fold)
    fold.hear(requests(3, a_1=2), 0.0)
    fold.hear(requests(1, instance="s2", whole=True, a_1=1, b_1=1), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.in_flight == {A: 3, B: 1}
    fold.hear(requests(4, b_1=0), 1.0)
    later = SERVER_SILENCE_MS_MAX + 1.0
    word = fold.word(later)
    assert word is not None
    assert word.in_flight == {A: 2}
    fold.hear(requests(5, a_1=0, **{"": 1}), later)
    word = fold.word(later)
    assert word is not None
    assert word.in_flight == {BASE: 1}


def test_ranks_hold_their_own() -> None:
    fold = ExtensionFold()
    whole(fold)
    fold.hear(residency(1, instance="w1", rank=1, whole=True, host=[2], names={"2": B}), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert [(rank.rank, rank.residency.host) for rank in word.ranks] == [(0, (B, A)), (1, (B,))]


def test_an_adapter_is_as_near_as_on_the_rank_where_it_is_farthest() -> None:
    fold = ExtensionFold()
    fold.hear(names(1, a_1=1, b_1=2, c_1=3), 0.0)
    fold.hear(residency(1, whole=True, hbm=[2, 1], host=[3, 2, 1], pinned=[1]), 0.0)
    other = {"hbm": [1], "host": [2, 1], "hbm_slots": 1, "pinned": [2]}
    fold.hear(residency(1, instance="w1", rank=1, whole=True, **other), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert (word.residency.hbm, word.residency.host) == ((A,), (B, A))
    assert (word.residency.hbm_slots, word.residency.host_slots) == (1, 4)
    assert word.pinned == {A, B}
    assert word.lives == {"w", "w1"}


def test_a_copy_has_the_name_it_is_about_to_get_and_no_name_that_it_lost() -> None:
    fold = ExtensionFold()
    fold.hear(residency(1, whole=True, host=[2, 3], names={"2": B, "3": "c~1"}), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.registered is None, "no API server told its names"
    assert word.residency.host == (B, "c~1")
    fold.hear(names(1, a_1=1, b_1=2), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.residency.host == (B, "c~1"), "its load is not over"
    fold.hear(names(2, a_1=1, b_1=2, c_1=3), 0.0)
    fold.hear(names(3, a_1=1), 0.0)
    word = fold.word(0.0)
    assert word is not None
    assert word.residency.host == ("(2)", "(3)")


def test_a_word_counts_while_an_api_server_lives() -> None:
    fold = ExtensionFold()
    fold.hear(residency(1, whole=True, host=[1], names={"1": A}), 0.0)
    assert not fold.speaks(0.0)
    fold.hear(requests(1, whole=True, a_1=1), 0.0)
    assert fold.speaks(SERVER_SILENCE_MS_MAX)
    assert not fold.speaks(SERVER_SILENCE_MS_MAX + 1.0)
    fold.hear(requests(2, whole=True, a_1=1), 6_000.0)
    fold.hear(residency(1, instance="w2", whole=True), 6_001.0)
    assert not fold.speaks(6_001.0), "the old process's API server went with it"


@pytest.mark.parametrize(
    "datagram",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'{"kind": "other", "instance": "x", "seq": 1, "at_ms": 1}',
        residency(1, host=["a"]),
        residency(1, names={"a": "b"}),
        residency(-1),
        residency(1, events=[{"op": "exploded", "id": 1}]),
        residency(1, names={"1": "n" * (1 << 18)}),
    ],
)
def test_what_is_no_message_is_refused(datagram: bytes) -> None:
    fold = ExtensionFold()
    with pytest.raises(WireError):
        fold.hear(datagram, 0.0)
    assert fold.word(0.0) is None


def test_senders_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vllm_extension_fold, "SENDERS_MAX", 2)
    fold = ExtensionFold()
    for number in range(2):
        fold.hear(requests(1, instance=f"s{number}", whole=True), 0.0)
        fold.hear(residency(1, instance=f"w{number}", rank=number), 0.0)
    with pytest.raises(WireError):
        fold.hear(requests(1, instance="s9", whole=True), 0.0)
    with pytest.raises(WireError):
        fold.hear(residency(1, instance="w9", rank=9), 0.0)
