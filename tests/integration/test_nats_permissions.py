"""What a server refuses to whom, tried with bare clients on a cluster in production form."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import nats.errors
import nkeys
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from tests.contract.registry_suite import watching
from tests.eventually import eventually, succeeds
from tests.nats_cluster import REGION, NatsCluster
from tests.owner import task_owner

from axiom_cli.nats_config.permissions import DOMAIN
from axiom_common.drivers import nats_registry
from axiom_common.drivers.nats_bus import NatsBus
from axiom_common.drivers.nats_journal import NatsJournal
from axiom_common.drivers.nats_registry import NatsBucket
from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import SettingsError, UnavailableError
from axiom_common.model.ids import GatewayId, NodeId, RegionId
from axiom_common.model.plan import Plan
from axiom_common.ports.registry import Entry
from axiom_common.runtime.logging import Log
from axiom_common.wire import keys, subjects
from axiom_common.wire.schemas import Lease, PlanRecord, encode
from axiom_gateway.plan_feed import PlanFeed

WITHIN_S = 15.0
N1, N2 = NodeId("n1"), NodeId("n2")
INCARNATIONS = keys.incarnation_bucket(REGION)
API, NODE_API = "$JS.API", f"$JS.{DOMAIN}.API"
OWN_RECORD = f"$KV.{INCARNATIONS}.n1"
OTHERS_REPORT = subjects.node_report(REGION, N2)
DESIRED_RECORD = f"$KV.{keys.DESIRED_BUCKET}.adapter.good"


@dataclass
class Fleet:
    """A cluster with buckets as services make them, agent n1 as a bare client, and an ear."""

    agent: Client
    desired: NatsBucket
    plans: NatsBucket
    incarnations: NatsBucket
    refused: list[str] = field(default_factory=list)
    heard: list[tuple[str, bytes]] = field(default_factory=list)

    async def is_refused(self, action: str, subject: str) -> None:
        """The server says so; it may do that after it has answered a later flush."""
        told = f'{action} to "{subject.lower()}"'
        try:
            await eventually(
                lambda: any(told in error for error in self.refused), within_s=WITHIN_S
            )
        except AssertionError as error:
            raise AssertionError(f"not refused: {action} {subject}") from error

    async def settled(self) -> None:
        """All that n1 sent has reached whom it may: its own report comes after it."""
        mark = b"mark %d" % len(self.heard)
        await self.agent.publish(subjects.node_report(REGION, N1), mark)
        await eventually(
            lambda: any(payload == mark for _, payload in self.heard), within_s=WITHIN_S
        )

    def heard_on(self, subject: str) -> list[bytes]:
        return [payload for on, payload in self.heard if on == subject]


@pytest.fixture
async def fleet(nats_cluster: NatsCluster) -> AsyncIterator[Fleet]:
    async with fleet_on(nats_cluster) as fleet:
        yield fleet


@asynccontextmanager
async def fleet_on(cluster: NatsCluster) -> AsyncIterator[Fleet]:
    refused: list[str] = []
    async with task_owner() as owner:
        gateway = cluster.connection("gateway", name="gateway.g1")
        scheduler = cluster.connection("scheduler", name="scheduler.s1")
        assert await gateway.start(owner)
        assert await scheduler.start(owner)
        declared = cluster.registry("gateway", gateway)
        fleet = Fleet(
            await cluster.client("n1", inbox="node-agent.n1", errors=refused),
            await declared.bucket(keys.DESIRED_BUCKET),
            await cluster.registry("scheduler", scheduler).bucket(keys.PLAN_BUCKET),
            await declared.bucket(INCARNATIONS, lasting=True),
            refused,
        )

        async def hear(subject: str, payload: bytes) -> None:
            fleet.heard.append((subject, payload))

        bus = NatsBus(gateway)
        await bus.subscribe(subjects.all_node_reports(REGION), hear)

        async def written() -> None:
            await fleet.desired.put("adapter.good", b"as declared")
            await fleet.plans.put(keys.plan_key(REGION, N1), b"plan of n1")
            await fleet.plans.put(keys.plan_key(REGION, N2), b"plan of n2")
            await fleet.incarnations.put(keys.GATEWAY_INCARNATION, b"")

        # A stream with three replicas may take its time on a loaded machine.
        await succeeds(written, despite=UnavailableError, within_s=WITHIN_S)
        await fleet.settled()
        yield fleet
        await fleet.agent.close()
        await bus.close()
        await gateway.close()
        await scheduler.close()


FORBIDDEN_TO_SAY = (
    OTHERS_REPORT,
    subjects.node_report(REGION, NodeId("*")),
    subjects.node_resync(REGION, N2),
    subjects.node_ensure(REGION, N2),
    subjects.gateway_inflight(REGION, GatewayId("g1")),
    subjects.node_inflight(REGION, N2, GatewayId("g1")),
    f"$KV.{keys.PLAN_BUCKET}.{keys.plan_key(REGION, N1)}",
    f"$KV.{INCARNATIONS}.n2",
    f"$KV.{INCARNATIONS}.{keys.GATEWAY_INCARNATION}",
    DESIRED_RECORD,
    f"$KV.{keys.lease_bucket(REGION)}.{keys.SCHEDULER_LEASE}",
    *(
        f"{api}.{call}"
        for api in (API, NODE_API)
        for call in (
            f"STREAM.DELETE.KV_{INCARNATIONS}",
            f"STREAM.PURGE.KV_{INCARNATIONS}",
            f"STREAM.UPDATE.KV_{INCARNATIONS}",
            f"STREAM.MSG.GET.KV_{keys.PLAN_BUCKET}",
            f"STREAM.MSG.DELETE.KV_{keys.PLAN_BUCKET}",
            "STREAM.CREATE.KV_mine",
            "STREAM.LIST",
            f"DIRECT.GET.KV_{keys.PLAN_BUCKET}.$KV.{keys.PLAN_BUCKET}.eu.n2",
            f"DIRECT.GET.KV_{keys.PLAN_BUCKET}",
            f"CONSUMER.CREATE.KV_{keys.PLAN_BUCKET}.c.$KV.{keys.PLAN_BUCKET}.eu.n1",
            f"CONSUMER.CREATE.KV_{INCARNATIONS}",
            f"CONSUMER.NAMES.KV_{keys.PLAN_BUCKET}",
        )
    ),
    "_INBOX.gateway.g1.x",
    "$SYS.REQ.SERVER.PING",
)
FORBIDDEN_TO_HEAR = (
    ">",
    "_INBOX.>",
    "_INBOX.node-agent.n2.>",
    "_INBOX.gateway.>",
    subjects.all_node_reports(REGION),
    subjects.node_ensure(REGION, N2),
    subjects.all_inflight(REGION),
    subjects.all_inflight_on(REGION, N2),
    "$KV.>",
    "$SYS.>",
)


async def test_an_agent_speaks_for_its_own_node_only(fleet: Fleet) -> None:
    for subject in FORBIDDEN_TO_SAY:
        await fleet.agent.publish(subject, b"forged")
        await fleet.is_refused("publish", subject)
    fleet.heard.clear()
    await fleet.settled()
    assert {subject for subject, _ in fleet.heard} == {subjects.node_report(REGION, N1)}
    assert await fleet.plans.get("eu.n1") is not None
    last = await fleet.desired.get("adapter.good")
    assert last is not None
    assert last.value == b"as declared"


async def test_an_agent_hears_its_own_node_only(fleet: Fleet) -> None:
    async def ignore(_: Msg) -> None:
        pass

    for subject in FORBIDDEN_TO_HEAR:
        await fleet.agent.subscribe(subject, cb=ignore)
        await fleet.is_refused("subscription", subject)


@pytest.mark.parametrize(
    "to",
    [
        OTHERS_REPORT,
        DESIRED_RECORD,
        f"$KV.{INCARNATIONS}.n2",
        f"{API}.STREAM.PURGE.KV_{keys.DESIRED_BUCKET}",
        f"{API}.STREAM.DELETE.KV_{keys.PLAN_BUCKET}",
    ],
)
async def test_no_answer_to_an_agent_lands_where_it_may_not_write(
    fleet: Fleet, nats_cluster: NatsCluster, to: str
) -> None:
    """A server checks no reply subject, and answers with rights of its own."""
    before = await _all(fleet)
    others = await nats_cluster.client("n2", inbox="node-agent.n2")
    await others.request(f"$KV.{INCARNATIONS}.n2", b"life of n2", timeout=WITHIN_S)
    plan = f"DIRECT.GET.KV_{keys.PLAN_BUCKET}.$KV.{keys.PLAN_BUCKET}.{keys.plan_key(REGION, N1)}"
    own = f"DIRECT.GET.KV_{INCARNATIONS}.{OWN_RECORD}"
    ours = await fleet.agent.request(OWN_RECORD, b"a forged report", timeout=WITHIN_S)
    assert json.loads(ours.data)["seq"]
    for subject in (
        OWN_RECORD,
        f"{NODE_API}.{own}",
        f"{NODE_API}.{plan}",
        f"{NODE_API}.STREAM.INFO.KV_{keys.PLAN_BUCKET}",
        subjects.node_report(REGION, N1),
    ):
        payload = b"a forged report" if subject == OWN_RECORD else b""
        await fleet.agent.publish(subject, payload, reply=to)
    await fleet.settled()
    assert fleet.heard_on(OTHERS_REPORT) == []
    assert await _all(fleet) == before
    read = f"{NODE_API}.DIRECT.GET.KV_{INCARNATIONS}.$KV.{INCARNATIONS}.n2"
    assert (await others.request(read, b"", timeout=WITHIN_S)).data == b"life of n2"
    await others.close()


async def _all(fleet: Fleet) -> list[Entry]:
    """All records of buckets that the agent does not write."""
    return [*await fleet.desired.list(), *await fleet.plans.list()]


async def test_what_an_agent_writes_to_its_own_record_reaches_no_other(
    fleet: Fleet, nats_cluster: NatsCluster
) -> None:
    others = await nats_cluster.client("n2", inbox="node-agent.n2")
    await others.request(f"$KV.{INCARNATIONS}.n2", b"life of n2", timeout=WITHIN_S)
    answer = await fleet.agent.request(
        OWN_RECORD, b"life", timeout=WITHIN_S, headers={"Nats-Rollup": "all"}
    )
    assert "error" in json.loads(answer.data)
    read = f"{NODE_API}.DIRECT.GET.KV_{INCARNATIONS}.$KV.{INCARNATIONS}.n2"
    kept = await others.request(read, b"", timeout=WITHIN_S)
    assert kept.data == b"life of n2"
    await others.close()


async def test_a_read_of_ones_own_key_names_no_other_in_its_body(fleet: Fleet) -> None:
    own = f"{NODE_API}.DIRECT.GET.KV_{keys.PLAN_BUCKET}.$KV.{keys.PLAN_BUCKET}.eu.n1"
    assert (await fleet.agent.request(own, b"", timeout=WITHIN_S)).data == b"plan of n1"
    for body in (
        b'{"last_by_subj":"$KV.axiom_plan.eu.n2"}',
        b'{"multi_last":["$KV.axiom_plan.>"]}',
        b'{"seq":2}',
        b'{"next_by_subj":"$KV.axiom_plan.eu.n2"}',
    ):
        answer = await fleet.agent.request(own, body, timeout=WITHIN_S)
        assert answer.data in (b"", b"plan of n1")


async def test_an_agent_follows_its_plan_without_asking_again(
    fleet: Fleet, nats_cluster: NatsCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nats_registry, "KEY_QUIETS", 10_000)
    key = keys.plan_key(REGION, N1)
    async with task_owner() as owner:
        connection = nats_cluster.connection("n1", name="node-agent.n1")
        assert await connection.start(owner)
        plans = await nats_cluster.registry("n1", connection).bucket(keys.PLAN_BUCKET)
        async with watching(plans, key=key) as told:
            await eventually(lambda: told[-1:] == [None], within_s=WITHIN_S)
            assert told[0] == await fleet.plans.get(key)

            async def written_and_told() -> None:
                # Servers tell each other who listens; a word before that is lost.
                revision = await fleet.plans.put(key, b"another plan of n1")
                written = Entry(key, b"another plan of n1", revision)
                await eventually(lambda: told[-1] == written, within_s=1.0)

            await succeeds(written_and_told, despite=AssertionError, within_s=WITHIN_S)
        with pytest.raises(UnavailableError):
            await plans.get(keys.plan_key(REGION, N2))
        await connection.close()


async def test_an_agent_makes_no_bucket(nats_cluster: NatsCluster) -> None:
    async with task_owner() as owner:
        connection = nats_cluster.connection("n1", name="node-agent.n1")
        assert await connection.start(owner)
        early = await nats_cluster.registry("n1", connection).bucket("early")
        with pytest.raises(UnavailableError):
            await early.put("k", b"v")
        await connection.close()


async def test_services_have_no_more_than_they_need(
    fleet: Fleet, nats_cluster: NatsCluster
) -> None:
    never = ("STREAM.DELETE.KV_axiom_desired", "STREAM.PURGE.KV_axiom_plan", "STREAM.CREATE.KV_x")
    forbidden = {
        "telemetry": (OTHERS_REPORT, DESIRED_RECORD, subjects.node_ensure(REGION, N1)),
        "gateway": (OTHERS_REPORT, f"$KV.{keys.PLAN_BUCKET}.eu.n1", f"$KV.{INCARNATIONS}.n1"),
        "scheduler": (OTHERS_REPORT, f"$KV.{INCARNATIONS}.n1", f"$KV.{keys.PLAN_BUCKET}.us.n1"),
    }
    for service, said in forbidden.items():
        refused: list[str] = []
        client = await nats_cluster.client(service, inbox=f"{service}.x", errors=refused)
        for subject in (*said, *(f"{API}.{call}" for call in never)):
            await client.publish(subject, b"")
        await count_reaches(refused, len(said) + len(never))
        await client.close()


async def test_gateways_follow_plans_and_see_whether_a_scheduler_leads(
    nats_cluster: NatsCluster,
) -> None:
    clock = SystemClock()
    node = NodeId("seen")
    plan = Plan(region=REGION, node=node, revision=1, fence=1, reason="", engines=())
    async with task_owner() as owner:
        scheduler = nats_cluster.connection("scheduler", name="scheduler.s1")
        gateway = nats_cluster.connection("gateway", name="gateway.g1")
        assert await scheduler.start(owner)
        assert await gateway.start(owner)
        writes = nats_cluster.registry("scheduler", scheduler)
        leases = await writes.bucket(keys.lease_bucket(REGION))
        plans = await writes.bucket(keys.PLAN_BUCKET)

        async def written() -> None:
            await leases.put(keys.SCHEDULER_LEASE, encode(Lease(holder="s1", fence=1)))
            await plans.put(keys.plan_key(REGION, node), encode(PlanRecord(plan=plan)))

        await succeeds(written, despite=UnavailableError, within_s=WITHIN_S)
        registry, bus = nats_cluster.registry("gateway", gateway), NatsBus(gateway)
        feed = await PlanFeed.of(registry, bus, clock, Log("test", clock), REGION)
        following = [owner.create_task(job, name=name) for name, job in feed.jobs().items()]
        await eventually(
            lambda: feed.plan(node) == plan and not feed.staleness_ms(), within_s=WITHIN_S
        )
        await leases.delete(keys.SCHEDULER_LEASE)
        await eventually(lambda: feed.staleness_ms() > 0.0, within_s=WITHIN_S)
        assert gateway.refused == 0
        for task in following:
            task.cancel()
        for connection in (gateway, scheduler):
            await connection.close()


async def test_gateways_tell_decisions_into_their_regions_stream_and_read_none(
    nats_cluster: NatsCluster,
) -> None:
    clock = SystemClock()
    subject = subjects.gateway_decision(REGION, GatewayId("g1"))
    stream = keys.decision_stream(REGION)
    async with task_owner() as owner:
        connection = nats_cluster.connection("gateway", name="gateway.g1")
        assert await connection.start(owner)
        journal = NatsJournal(
            connection,
            clock,
            stream,
            subject=subjects.all_decisions(REGION),
            bytes_max=1 << 20,
            age_ms=60_000.0,
            message_bytes_max=1 << 16,
        )
        await succeeds(
            lambda: journal.append(subject, b"decided"),
            despite=UnavailableError,
            within_s=WITHIN_S,
        )
        info = connection.session().client.jetstream().stream_info

        async def kept() -> None:
            assert (await info(stream)).state.messages == 1

        await succeeds(kept, despite=AssertionError, within_s=WITHIN_S)
        assert connection.refused == 0
        await connection.close()
    refused: list[str] = []
    client = await nats_cluster.client("gateway", inbox="gateway.x", errors=refused)
    others = subjects.gateway_decision(RegionId("other"), GatewayId("g1"))
    forbidden = (
        others,
        *(f"{API}.STREAM.{call}.{stream}" for call in ("DELETE", "PURGE", "UPDATE", "MSG.GET")),
    )
    for said in forbidden:
        await client.publish(said, b"")
    await count_reaches(refused, len(forbidden))
    await client.close()


async def count_reaches(refused: list[str], expected: int) -> None:
    """So many were refused, and no fewer."""
    await eventually(lambda: len(refused) == expected, within_s=WITHIN_S)


async def test_who_has_no_key_or_no_certificate_is_let_in_nowhere(
    nats_cluster: NatsCluster,
) -> None:
    own = nats_cluster.credentials("n1")
    without_certificate = replace(own, cert_file=None, key_file=None)
    stranger = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER).decode()
    for seed, credentials in (
        (stranger, own),
        (None, own),
        (own.read_seed(), without_certificate),
    ):
        client = Client()
        with pytest.raises((nats.errors.Error, OSError)):
            await client.connect(
                nats_cluster.url.split(","),
                nkeys_seed_str=seed,
                tls=credentials.tls(),
                allow_reconnect=False,
                max_reconnect_attempts=1,
            )
        await client.close()


async def test_a_connection_says_what_it_was_refused_and_goes_on(
    nats_cluster: NatsCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async with task_owner() as owner:
        connection = nats_cluster.connection("n1", name="node-agent.n1")
        assert await connection.start(owner)
        bus = NatsBus(connection)
        for _ in range(3):
            await bus.publish(OTHERS_REPORT, b"")
        await bus.publish(DESIRED_RECORD, b"")

        def lines() -> list[str]:
            found = [r for r in caplog.records if r.getMessage() == "nats refuses"]
            return [str(getattr(record, "fields", {})["subject"]) for record in found]

        await eventually(lambda: len(lines()) == 2, within_s=WITHIN_S)
        assert lines() == [OTHERS_REPORT.lower(), DESIRED_RECORD.lower()]
        await eventually(lambda: bus.refused == 4, within_s=WITHIN_S)
        assert bus.connected
        await connection.close()


async def test_a_missing_seed_ends_the_start(nats_cluster: NatsCluster, tmp_path: Path) -> None:
    async with task_owner() as owner:
        seed = nats_cluster.credentials("n1").nkey_seed_file
        assert seed is not None
        moved = seed.rename(tmp_path / "away.nk")
        try:
            with pytest.raises(SettingsError, match="nats_nkey_seed_file"):
                await nats_cluster.connection("n1", name="node-agent.n1").start(owner)
        finally:
            moved.rename(seed)
