"""The wire as it stands: every message, record, name and shape against its committed vector.

A failure here means that others, who still speak the old wire, would read something else. Where the
change is meant, `python -m tests.contract.golden_examples` writes the vectors anew; a change that
an old reader would misread needs a new version (`wire.schemas.VERSION`) as well.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.contract import golden_examples as golden

from axiom_common.wire import desired, keys, requests, rest, schemas
from axiom_common.wire.examples import API_KEY

FILES = golden.vectors()
KINDS = ["adapter", "base-model", "tenant", "profile", "api-key", "engine-order"]


def committed(name: str) -> bytes:
    return (golden.GOLDEN / name).read_bytes()


def test_every_message_record_and_shape_has_an_example() -> None:
    """A new kind without a vector fails here, before it is in use anywhere."""
    assert {type(m) for m in golden.MESSAGES} == set(golden.message_kinds())
    assert {golden.plain(type(s)) for s in golden.REST} == golden.rest_shapes()
    assert {f"desired-{kind.__struct_config__.tag}.json" for kind in golden.record_kinds()} == {
        name for name in FILES if name.startswith("desired-")
    }


def test_the_committed_vectors_are_these_and_no_others() -> None:
    on_disk = {p.name for p in golden.GOLDEN.iterdir() if p.suffix in (".hex", ".json")}
    assert on_disk == set(FILES)


@pytest.mark.parametrize("name", sorted(FILES))
def test_what_is_sent_is_as_committed(name: str) -> None:
    assert FILES[name] == committed(name)


@pytest.mark.parametrize("message", golden.MESSAGES, ids=lambda m: type(m).__name__)
def test_a_committed_message_reads_as_its_example(message: Any) -> None:
    payload = golden.from_hex(committed(f"{type(message).__struct_config__.tag}.hex"))
    assert schemas.decode(payload, type(message)) == message


def test_a_vector_of_before_does_not_say_what_its_gateway_has_taken_over() -> None:
    """A field that was added, in a message of a gateway that does not know it."""
    (now,) = (m for m in golden.MESSAGES if isinstance(m, schemas.InFlightReport))
    before = msgspec.msgpack.decode(schemas.encode(now))
    del before["applied"]
    read = schemas.decode(msgspec.msgpack.encode(before), schemas.InFlightReport)
    assert read == msgspec.structs.replace(now, applied=None)


def test_a_key_of_before_belongs_to_the_default_tenant() -> None:
    record = msgspec.json.decode(committed("desired-api-key.json"))
    del record["api_key"]["tenant"]
    read = desired.decode("api-key.ci-deploys", msgspec.json.encode(record))
    assert read == replace(API_KEY, tenant="default")


def test_the_committed_beat_reads_as_its_example() -> None:
    assert schemas.decode_beat(golden.from_hex(committed("node-beat.hex"))) == golden.BEAT


@pytest.mark.parametrize(
    ("name", "declared"),
    list(zip(KINDS, golden.DECLARED, strict=True)),
)
def test_a_committed_record_reads_as_its_example(name: str, declared: desired.Declared) -> None:
    record = committed(f"desired-{name}.json")
    assert desired.decode(desired.key_of(declared), record) == declared


def test_the_committed_floor_reads_as_its_example() -> None:
    assert desired.decode_floor(committed("desired-revision-floor.json")) == golden.FLOOR


def test_the_committed_record_of_a_request_reads_as_its_example() -> None:
    assert requests.decode(committed("request.json")) == golden.REQUEST


@pytest.mark.parametrize("shape", golden.REST, ids=lambda s: type(s).__name__)
def test_a_committed_shape_reads_as_its_example(shape: rest.BaseModel) -> None:
    content = committed(f"rest-{golden.plain(type(shape)).__name__}.json")
    assert type(shape).model_validate_json(content) == shape


def test_each_optional_field_is_seen_with_another_value_than_its_default() -> None:
    """What only ever stands at its default could change its meaning unseen."""
    seen: dict[str, bool] = {}
    for message in (*golden.MESSAGES, golden.BEAT, *golden.DECLARED):
        for path, differs in golden.optional_fields(message):
            seen[path] = seen.get(path, False) or differs
    same = {path for path, differs in seen.items() if not differs}
    assert same == {f"{type(m).__name__}.v" for m in golden.MESSAGES}


def test_the_keys_hold_an_escaped_name() -> None:
    names = golden.names_of(keys)
    assert names["escape"] == "acme_2fsql_2ev2_3a_c3_bc_5f"
    assert names["planned_node"] == golden.NODE
