"""Who may say and hear what: the least that each role needs, cut by subjects.

A server checks on which subject one publishes, and not on which one asks to be answered; and it
answers with its own rights. In one account with others, who may ask JetStream anything could have
the answer written to any subject, be it a report or a record. So each node has an account of its
own: what it asks for is imported there, and answers stay there (`Node`).
"""

from __future__ import annotations

from dataclasses import dataclass

from axiom_common.drivers.nats_connection import inbox_of
from axiom_common.drivers.nats_streams import changed_on
from axiom_common.model.ids import GatewayId, NodeId, RegionId
from axiom_common.wire import keys, subjects

ANY = "*"
"""One token, whatever it is."""
ALL = ">"
"""All that follows, whatever it is."""

DOMAIN = "axiom"
"""JetStream's name in a node's account, which has none of its own: that of Axiom's account."""
_API = "$JS.API."


@dataclass(frozen=True, slots=True, kw_only=True)
class Permissions:
    """Subjects that a user may publish on and subscribe to. `answers`: it may also reply, once, to
    each request that it got."""

    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    answers: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """What connects a node's account with Axiom's. `asks`: on these its agent publishes, and gets
    answers; `hears`: messages to the node; `serves`: requests that the agent answers."""

    asks: tuple[str, ...]
    hears: tuple[str, ...]
    serves: tuple[str, ...]
    inbox: str

    @property
    def permissions(self) -> Permissions:
        """The same once more as permissions, so that what leads nowhere is refused aloud."""
        subscribe = (*self.hears, *self.serves, self.inbox)
        publish = tuple(in_domain(subject) for subject in self.asks)
        return Permissions(publish=publish, subscribe=subscribe, answers=True)


def node(region: RegionId, name: NodeId) -> Node:
    """An agent speaks for its own node: reports, its incarnation, and a look at its plan."""
    incarnations = keys.incarnation_bucket(region)
    return Node(
        asks=(
            subjects.node_report(region, name),
            subjects.node_facts(region, name),
            *_opens(incarnations),
            *_reads_one(incarnations, name),
            _record(incarnations, name),
            *_opens(keys.PLAN_BUCKET),
            *_reads_one(keys.PLAN_BUCKET, keys.plan_key(region, name)),
        ),
        hears=(
            subjects.node_resync(region, name),
            subjects.node_facts_wanted(region, name),
            subjects.all_inflight_on(region, name),
            changed_on(keys.PLAN_BUCKET, keys.plan_key(region, name)),
        ),
        serves=(subjects.node_ensure(region, name),),
        inbox=_inbox("node-agent", name),
    )


def gateway(region: RegionId) -> Permissions:
    """Gateways ask agents, tell what they have in flight, and write what people declare; plans, and
    whether a scheduler leads, they only show."""
    incarnations, requests = keys.incarnation_bucket(region), keys.request_bucket(region)
    leases = keys.lease_bucket(region)
    return Permissions(
        publish=(
            subjects.gateway_inflight(region, GatewayId(ANY)),
            subjects.node_inflight(region, NodeId(ANY), GatewayId(ANY)),
            subjects.node_ensure(region, NodeId(ANY)),
            subjects.node_resync(region, NodeId(ANY)),
            subjects.node_facts_wanted(region, NodeId(ANY)),
            subjects.gateway_decision(region, GatewayId(ANY)),
            *_makes_stream(keys.decision_stream(region)),
            *_makes(incarnations),
            _record(incarnations, keys.GATEWAY_INCARNATION),
            *_owns(keys.DESIRED_BUCKET, ALL),
            *_makes(keys.PLAN_BUCKET),
            *_gets(keys.PLAN_BUCKET),
            *_watches(keys.PLAN_BUCKET, ALL),
            *_makes(leases),
            *_gets(leases),
            *_makes(requests),
            *_gets(requests),
            _record(requests, ANY),
        ),
        subscribe=(
            subjects.all_node_reports(region),
            subjects.all_node_facts(region),
            subjects.all_inflight(region),
            changed_on(leases, keys.SCHEDULER_LEASE),
            _inbox("gateway", ALL),
        ),
    )


def telemetry(region: RegionId) -> Permissions:
    """Telemetry hears all nodes and asks them again; its instances share nodes by leases."""
    return Permissions(
        publish=(
            subjects.node_resync(region, NodeId(ANY)),
            *_owns(keys.lease_bucket(region), keys.TELEMETRY_PREFIX + ANY),
        ),
        subscribe=(subjects.all_node_reports(region), _inbox("telemetry", ALL)),
    )


def scheduler(region: RegionId) -> Permissions:
    """Schedulers write plans under a lease; after a lost store also what was declared."""
    return Permissions(
        publish=(
            *_owns(keys.PLAN_BUCKET, keys.plan_key(region, NodeId(ANY))),
            *_owns(keys.DESIRED_BUCKET, ALL),
            *_makes(keys.lease_bucket(region)),
            *_gets(keys.lease_bucket(region)),
            _record(keys.lease_bucket(region), keys.SCHEDULER_LEASE),
        ),
        subscribe=(subjects.all_node_reports(region), _inbox("scheduler", ALL)),
    )


def in_domain(subject: str) -> str:
    """What a subject of JetStream's API is called by who names the domain; others as they are."""
    if not subject.startswith(_API):
        return subject
    return f"$JS.{DOMAIN}.API.{subject.removeprefix(_API)}"


def _inbox(service: str, name: str) -> str:
    """Where a connection called `service.name` gets replies; `ALL` for every name."""
    return inbox_of(service) + "." + (name if name == ALL else f"{name}.{ALL}")


def _record(bucket: str, key: str) -> str:
    return f"$KV.{bucket}.{key}"


def _opens(bucket: str) -> tuple[str, ...]:
    return (f"{_API}STREAM.INFO.KV_{bucket}",)


def _makes(bucket: str) -> tuple[str, ...]:
    return _makes_stream(f"KV_{bucket}")


def _makes_stream(name: str) -> tuple[str, ...]:
    return (f"{_API}STREAM.INFO.{name}", f"{_API}STREAM.CREATE.{name}")


def _gets(bucket: str) -> tuple[str, ...]:
    # The key is in the request's body, so this reads every key of the bucket.
    return (f"{_API}STREAM.MSG.GET.KV_{bucket}",)


def _reads_one(bucket: str, key: str) -> tuple[str, ...]:
    return (f"{_API}DIRECT.GET.KV_{bucket}.{_record(bucket, key)}",)


def _watches(bucket: str, key: str) -> tuple[str, ...]:
    """Consumers of records under `key`; of others' consumers one would have to know the name."""
    return (
        f"{_API}CONSUMER.CREATE.KV_{bucket}.*.{_record(bucket, key)}",
        f"{_API}CONSUMER.INFO.KV_{bucket}.*",
        f"{_API}CONSUMER.DELETE.KV_{bucket}.*",
    )


def _owns(bucket: str, key: str) -> tuple[str, ...]:
    """Make the bucket, read all of it, and write records under `key`."""
    reads = (*_makes(bucket), *_gets(bucket), *_watches(bucket, ALL))
    return (*reads, _record(bucket, key))
