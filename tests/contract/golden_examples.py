"""One fixed example of everything that goes over a wire, and where its golden vector lies.

`python -m tests.contract.golden_examples`, from the root of the repository, writes all vectors anew
after a change of the wire that is meant; the diff of `tests/golden` then shows what changes for
those who still speak the old one.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict, is_dataclass
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import msgspec
from tests.admin_parts import described

from axiom_common.model import adapter, decision, engine, engine_order, ensure, outcome, reason
from axiom_common.model.adapter import BaseModelSpec
from axiom_common.model.ensure import EnsureOutcome, EnsureResult
from axiom_common.model.ids import EngineAdapter
from axiom_common.model.prefix import FactBatch, PrefixScope, chain
from axiom_common.model.reason import Reason
from axiom_common.model.tenant import Tenant
from axiom_common.state.region_view import EngineBeat, NodeBeat
from axiom_common.wire import (
    decisions,
    desired,
    engine_orders,
    headers,
    keys,
    requests,
    rest,
    schemas,
    subjects,
    views,
)
from axiom_common.wire.examples import (
    API_KEY,
    DECISION,
    ENGINE,
    ENGINE_STATE,
    GATEWAY,
    GPU,
    HOST,
    NODE,
    NODE_STATE,
    ORDER,
    OUTCOME,
    PLAN,
    PLAN_STATUS,
    PROFILE,
    REGION,
    REST,
    SQL,
)
from axiom_gateway.admin_openapi import ROLE

GOLDEN = Path(__file__).parent.parent / "golden"
HEX_WIDTH = 64

COUNTS = (
    schemas.InFlightCount(engine=ENGINE, adapter=EngineAdapter("acme/sql.v2~3"), count=2),
    schemas.InFlightCount(engine=ENGINE, adapter=EngineAdapter(""), count=0),
)

MESSAGES: tuple[schemas.Message, ...] = (
    schemas.NodeReport(
        kind=schemas.ReportKind.FULL,
        region=REGION,
        node=NODE,
        incarnation=41,
        seq=1_000_000,
        base=999_999,
        engines=(ENGINE_STATE,),
        gpus=NODE_STATE.gpus,
        host=HOST,
        plan=PLAN_STATUS,
    ),
    schemas.ResyncRequest(asker="gateway-1"),
    schemas.EnsureRequest(
        engine=ENGINE,
        adapter=SQL,
        deadline_ms=1500.0,
        gateway=GATEWAY,
        in_flight=COUNTS,
        traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    ),
    schemas.EnsureReply(
        result=EnsureResult(outcome=EnsureOutcome.REFUSED, reason=Reason.NO_IDLE_SLOT)
    ),
    schemas.InFlightReport(
        kind=schemas.ReportKind.DELTA,
        region=REGION,
        gateway=GATEWAY,
        incarnation=9,
        seq=77,
        counts=COUNTS,
        applied=1_031,
    ),
    schemas.DecisionReport(
        region=REGION,
        gateway=GATEWAY,
        id="5f3a-1c",
        age_ms=3_310.5,
        share=0.25,
        base_model="llama-3-8b",
        adapter=EngineAdapter("acme/sql.v2~3"),
        rank=16,
        size_bytes=40_894_464,
        prompt_tokens=250,
        weights=(1.0, 1.0, 1.0, 1.0, 1.0, 1.0),
        attempts=(schemas.DecidedAttempt(attempt=2, after_ms=900.5, decision=DECISION),),
        outcome=OUTCOME,
    ),
    schemas.FactReport(
        kind=schemas.FactKind.SNAPSHOT,
        region=REGION,
        node=NODE,
        incarnation=41,
        engine=ENGINE,
        revision="9c1185a5c5e9fc54",
        seq=12,
        part=1,
        parts=2,
        cleared=True,
        hbm=FactBatch.of([(0x1122334455667788, 256)], [0x99AABBCCDDEEFF00]),
        any_tier=FactBatch.of([(0x0102030405060708, 64), (9, 128)], [10]),
    ),
    schemas.FactRequest(asker="gateway-1", engines=(ENGINE,)),
    schemas.NodeRecord(state=NODE_STATE),
    schemas.PlanRecord(plan=PLAN),
    schemas.Lease(holder="scheduler-1-5f3a", fence=12),
)

BEAT = NodeBeat(
    region=REGION,
    node=NODE,
    incarnation=41,
    seq=1_000_001,
    base=1_000_000,
    engines=(EngineBeat(ENGINE, ENGINE_STATE.figures, order=(1, 0), ranks=ENGINE_STATE.ranks),),
    gpus=(GPU,),
)

DECLARED: tuple[desired.Declared, ...] = (
    SQL,
    BaseModelSpec(name="llama-3-8b"),
    Tenant(name="acme", salt="s4lt", weight=2.5, priority_band=0, regions=(REGION,)),
    PROFILE,
    API_KEY,
    ORDER,
)
FLOOR = 17
REQUEST = requests.RequestRecord(
    asked="5f" * 32,
    answer=requests.KeptAnswer(status=201, headers={"etag": '"1030"'}, body='{"name":"a"}'),
)

_ARGUMENTS: dict[str, Any] = {
    "region": REGION,
    "node": NODE,
    "gateway": GATEWAY,
    "instance": "telemetry-1",
    "prefix": keys.ADAPTER_PREFIX,
    "name": "acme/sql.v2:ü_",
    "key": "eu-1.node-1",
    "text": "acme_2fsql_2ev2_3a_c3_bc_5f",
}
_ENUM_HOMES = (adapter, decision, engine, engine_order, ensure, outcome, reason, schemas)


def message_kinds() -> tuple[type[Any], ...]:
    """Every message of the bus and the stores."""
    return get_args(schemas.Message)


def record_kinds() -> tuple[type[Any], ...]:
    """Every record of desired state."""
    return get_args(desired.Record)


def rest_shapes() -> set[type[Any]]:
    """Every shape of the admin API."""
    return {
        shape
        for module in (rest, views, decisions, engine_orders)
        for name, shape in vars(module).items()
        if inspect.isclass(shape)
        and issubclass(shape, rest.BaseModel)
        and shape.__module__ == module.__name__
        and not name.startswith("_")
        and shape not in (rest.Shape, rest.Body, rest.DeclaredShape)
    }


def plain(shape: type[Any]) -> type[Any]:
    """A shape, without that of its items."""
    return shape.__pydantic_generic_metadata__["origin"] or shape


def names_of(module: ModuleType) -> dict[str, Any]:
    """Each public constant of a module, and what each public function gives for the fixed ids."""
    found: dict[str, Any] = {}
    for name, value in vars(module).items():
        if name.startswith("_"):
            continue
        if isinstance(value, str | int) and name.isupper():
            found[name] = value
        elif inspect.isfunction(value) and value.__module__ == module.__name__:
            arguments = [_ARGUMENTS[parameter] for parameter in inspect.signature(value).parameters]
            found[name] = value(*arguments)
    return found


def optional_fields(value: Any) -> Iterator[tuple[str, bool]]:
    """(`Type.field`, whether it differs from its default) for all fields with a default below."""
    if isinstance(value, tuple):
        for item in value:
            yield from optional_fields(item)
    elif isinstance(value, msgspec.Struct) or is_dataclass(value):
        for field in msgspec.inspect.type_info(type(value)).fields:
            held = getattr(value, field.name)
            default = field.default
            if field.default_factory is not msgspec.NODEFAULT:
                default = field.default_factory()
            if default is not msgspec.NODEFAULT:
                yield f"{type(value).__name__}.{field.name}", held != default
            yield from optional_fields(held)


def enums() -> dict[str, list[str]]:
    """Every closed list of words that a message may hold."""
    found = {
        name: [str(member) for member in value]
        for module in _ENUM_HOMES
        for name, value in vars(module).items()
        if inspect.isclass(value) and issubclass(value, StrEnum) and value is not StrEnum
    }
    return dict(sorted(found.items()))


def admin_routes() -> list[str]:
    """Method, path and role of each route below /admin/v1."""
    paths = asyncio.run(described())["paths"]
    return sorted(
        f"{method.upper()} {path} {operation[ROLE]}"
        for path, operations in paths.items()
        for method, operation in operations.items()
    )


def prefix_chains() -> list[dict[str, Any]]:
    """Scopes and texts with their links."""
    texts = (("The contract says: naïve café, 日本語. ", 8), ("0123456789abcdef", 600))
    scopes = (
        PrefixScope(base_model="llama", revision="1"),
        PrefixScope(
            base_model="llama",
            revision="1",
            adapter=EngineAdapter("support-bot~3"),
            cache_salt="tenant-a",
        ),
    )
    return [
        {
            "scope": asdict(scope),
            "seed": f"{scope.seed:016x}",
            "text": text,
            "times": times,
            "links": [f"{link:016x}" for link in chain(scope, text.encode() * times)],
        }
        for scope in scopes
        for text, times in texts
    ]


def _tag(kind: type[Any]) -> str:
    return str(kind.__struct_config__.tag)


def vectors() -> dict[str, bytes]:
    """File name below tests/golden -> its content."""
    files = {f"{_tag(type(m))}.hex": _hex(schemas.encode(m)) for m in MESSAGES}
    files["node-beat.hex"] = _hex(schemas.encode(BEAT))
    files["request.json"] = requests.encode(REQUEST) + b"\n"
    records = [desired.encode(value) for value in DECLARED] + [desired.encode_floor(FLOOR)]
    for record in records:
        files[f"desired-{msgspec.json.decode(record)['type']}.json"] = record + b"\n"
    for shape in REST:
        files[f"rest-{plain(type(shape)).__name__}.json"] = (
            shape.model_dump_json(indent=2).encode() + b"\n"
        )
    names = {"subjects": subjects, "keys": keys, "headers": headers}
    for name, module in names.items():
        files[f"{name}.json"] = _json(names_of(module))
    files["enums.json"] = _json(enums())
    files["admin-routes.json"] = _json(admin_routes())
    files["prefix-chain.json"] = _json(prefix_chains())
    return files


def from_hex(content: bytes) -> bytes:
    """The bytes that a .hex file stands for."""
    return bytes.fromhex(content.decode())


def _hex(payload: bytes) -> bytes:
    text = payload.hex()
    lines = [text[at : at + HEX_WIDTH] for at in range(0, len(text), HEX_WIDTH)]
    return "\n".join([*lines, ""]).encode()


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=2, ensure_ascii=False).encode() + b"\n"


def main() -> None:
    """Write all vectors anew, and remove those of what is no more."""
    wanted = vectors()
    for path in GOLDEN.iterdir():
        if path.suffix in (".hex", ".json") and path.name not in wanted:
            path.unlink()
    for name, content in wanted.items():
        (GOLDEN / name).write_bytes(content)


if __name__ == "__main__":
    main()
