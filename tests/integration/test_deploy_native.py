"""docker-compose.yml, started without Docker: each service with its container's command,
environment and health check (`tests/compose_host.py`)."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import redis
import yaml
from tests.compose_host import ROOT, ComposeHost, compose_project

from axiom_cli.stack.servers import nats_binary, valkey_binary

pytestmark = [
    pytest.mark.timeout(400),
    pytest.mark.skipif(sys.platform != "linux", reason="needs all of 127.0.0.0/8"),
]
REGIONS = ("eu", "us")
NOT_AXIOM = {"prometheus", "grafana"}
"""No binary of these is here."""
ASKED_WITHIN_S = 30.0


@pytest.fixture(scope="module")
def host() -> Iterator[ComposeHost]:
    """All services, up."""
    nats_binary()
    valkey_binary()
    # Paths of sockets have to be short.
    folder = Path(tempfile.mkdtemp(prefix="axiom-"))
    host = ComposeHost(compose_project(), folder, without=NOT_AXIOM)
    try:
        host.up()
        yield host
    finally:
        host.stop()
        shutil.rmtree(folder)


def test_every_service_comes_up_and_says_that_it_is_healthy(host: ComposeHost) -> None:
    assert host.healthy | host.completed == set(host.services)
    assert {f"{region}-{job}" for region in REGIONS for job in ("keys", "adapters")} <= (
        host.completed
    )
    assert len(host.healthy) > 30


@pytest.mark.parametrize("gateway", ["eu-gateway-1", "eu-gateway-2", "us-gateway-1"])
def test_a_request_for_an_adapter_is_served_in_its_region(host: ComposeHost, gateway: str) -> None:
    url = f"http://{host.addresses[gateway]}:8080/v1/chat/completions"
    body = {
        "model": "adapter-03",
        "max_tokens": 4,
        "messages": [{"role": "user", "content": "hello"}],
    }
    deadline = time.monotonic() + ASKED_WITHIN_S
    # A gateway is ready before it has heard of all engines.
    while (answer := httpx2.post(url, json=body, timeout=ASKED_WITHIN_S)).status_code != 200:
        assert time.monotonic() < deadline, answer.text
    assert answer.headers["x-axiom-engine"].startswith(gateway.split("-")[0] + "-node-")


def test_agents_hear_the_extensions_of_their_engines(host: ComposeHost) -> None:
    for region in REGIONS:
        url = f"http://{host.addresses[f'{region}-gateway-1']}:8080/admin/v1/engines"
        assert httpx2.get(url, timeout=ASKED_WITHIN_S).status_code == 401
        key = {"authorization": f"Bearer {host.kept(f'{region}-keys', 'admin/admin.key')}"}
        engines = httpx2.get(url, headers=key, timeout=ASKED_WITHIN_S).json()["items"]
        assert {engine["engine"] for engine in engines} == {
            f"{region}-node-{n}.gpu0" for n in (1, 2)
        }
        assert {engine["status"] for engine in engines} == {"ready"}


@pytest.mark.parametrize("region", REGIONS)
def test_the_shadow_cache_is_a_cluster_with_a_replica_for_each_master(
    host: ComposeHost, region: str
) -> None:
    with redis.Redis(host.addresses[f"{region}-valkey-1"]) as client:
        nodes = client.execute_command("CLUSTER NODES").values()
    masters = {node["node_id"] for node in nodes if "master" in node["flags"]}
    followed = {node["master_id"] for node in nodes if "slave" in node["flags"]}
    assert len(nodes) == 6
    assert len(masters) == 3
    assert followed == masters


def test_forming_the_cluster_again_changes_nothing(host: ComposeHost) -> None:
    before = shape(host, "eu-valkey-1")
    form_cluster(host, "eu")
    assert shape(host, "eu-valkey-1") == before


def test_servers_that_have_moved_find_each_other_again(host: ComposeHost) -> None:
    before = shape(host, "us-valkey-1")
    names = [f"us-valkey-{n}" for n in range(1, 7)]
    host.move(names)
    form_cluster(host, "us")
    assert shape(host, "us-valkey-1") == before
    for name in names:
        with redis.Redis(host.addresses[name]) as client:
            nodes = client.execute_command("CLUSTER NODES")
        assert set(nodes) == {f"{host.addresses[name]}:6379" for name in names}
        assert all(node["connected"] for node in nodes.values())


def form_cluster(host: ComposeHost, region: str) -> None:
    """As one who starts the region anew."""
    addresses = [f"{host.addresses[f'{region}-valkey-{n}']}:6379@16379" for n in range(1, 7)]
    form = [sys.executable, str(ROOT / "deploy" / "redis" / "form_cluster.py"), *addresses[:3]]
    subprocess.run([*form, "--replicas", *addresses[3:]], check=True, timeout=90)


def shape(host: ComposeHost, server: str) -> set[tuple[str, str, str]]:
    """Who there is, whom each follows, and the slots it holds."""
    with redis.Redis(host.addresses[server]) as client:
        nodes = client.execute_command("CLUSTER NODES").values()
    return {(node["node_id"], node["master_id"], str(node["slots"])) for node in nodes}


def test_prometheus_finds_figures_at_each_of_its_targets(host: ComposeHost) -> None:
    config = yaml.safe_load((ROOT / "deploy" / "prometheus" / "prometheus.yml").read_text())
    targets = [
        target.rpartition(":")
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    ]
    for name, _, port in targets:
        if name in host.addresses:
            page = httpx2.get(f"http://{host.addresses[name]}:{port}/metrics", timeout=10)
            assert page.status_code == 200, name
            assert "# HELP" in page.text, name
    assert {name for name, _, _ in targets} - set(host.addresses) == {"127.0.0.1"}


def test_a_health_check_fails_once_its_service_is_gone(host: ComposeHost) -> None:
    """Last but one: it ends one of a pair."""
    process = host.processes["us-scheduler-2"]
    assert host.check("us-scheduler-2")
    process.terminate()
    process.wait(30)
    assert not host.check("us-scheduler-2")


def test_services_end_by_themselves_when_they_are_told_to(host: ComposeHost) -> None:
    """Last: it ends all."""
    codes = host.stop()
    own = {name for name, service in host.services.items() if service["image"].startswith("axiom:")}
    wrong = {name: code for name, code in codes.items() if code == -9 or (code and name in own)}
    assert not wrong, "".join(f"\n{name}: {host.log(name)[-2000:]}" for name in wrong)
