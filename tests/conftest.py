"""Real servers for the tests, isolation between them, and no sockets where none belong.

Servers come from a native binary, else from a Docker engine that answers; where neither is, tests
that need one are skipped, and fail when `CI` is set.
"""

from __future__ import annotations

import itertools
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NoReturn

import hypothesis
import pytest
from tests.nats_cluster import NatsCluster, running_nats_cluster
from tests.servers import ChildServer, nats_server, running, valkey_server
from tests.valkey_cluster import ValkeyCluster, running_cluster

from axiom_cli.stack.servers import nats_binary, valkey_binary
from axiom_common.errors import NotFoundError
from axiom_common.model.ids import RegionId

_NUMBERS = itertools.count(1)
_SOCKETLESS = {"unit", "property"}

# A law holds or does not; how long one example takes is the machine's business.
hypothesis.settings.register_profile("axiom", deadline=None)
hypothesis.settings.load_profile("axiom")


@pytest.fixture(autouse=True)
def _no_sockets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unit and property tests decide; they talk to nobody."""
    if not _SOCKETLESS & set(request.path.parts):
        return

    def refuse(*args: object, **kwargs: object) -> NoReturn:
        raise AssertionError("unit and property tests open no sockets")

    for name in ("connect", "connect_ex", "bind"):
        monkeypatch.setattr(socket.socket, name, refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="session", autouse=True)
def _own_contexts(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Commands that tests run, in this process or in others, leave the user's contexts alone."""
    os.environ["AXIOM_CONTEXTS"] = str(tmp_path_factory.mktemp("contexts") / "contexts.yaml")


@pytest.fixture(scope="session")
def nats_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A NATS server with JetStream, shared by the tests of this process."""
    try:
        nats_binary()
    except NotFoundError as error:
        yield from _nats_in_docker(str(error))
        return
    with running(nats_server(tmp_path_factory.mktemp("nats"))) as server:
        yield server.url


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Valkey server, shared by the tests of this process."""
    try:
        valkey_binary()
    except NotFoundError as error:
        yield from _valkey_in_docker(str(error))
        return
    with running(valkey_server(tmp_path_factory.mktemp("valkey"))) as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """Three Valkey masters with replicas, shared by the tests of this process. A test that kills
    or pauses one calls `heal` at its end."""
    try:
        valkey_binary()
    except NotFoundError as error:
        _missing(str(error))
    with running_cluster(tmp_path_factory.mktemp("valkey-cluster")) as cluster:
        yield cluster


@pytest.fixture
def region() -> RegionId:
    """A region that no other test uses: its subjects, keys and leases are this test's own."""
    return RegionId(f"t{next(_NUMBERS)}-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def own_nats(tmp_path: Path) -> Iterator[ChildServer]:
    """A NATS server of this test alone, to kill and restart."""
    yield from _child(nats_binary, nats_server(tmp_path / "nats"))


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ChildServer]:
    """A Valkey server of this test alone, to kill and restart."""
    yield from _child(valkey_binary, valkey_server(tmp_path / "valkey"))


@pytest.fixture(scope="module")
def nats_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsCluster]:
    """A NATS cluster in production form, shared by the tests of a module. A test that kills or
    pauses a server brings it back; a second loss right after the first is over leaves this NATS
    without a leader until the second server is back as well, so modules that kill share none."""
    try:
        nats_binary()
    except NotFoundError as error:
        _missing(str(error))
    with running_nats_cluster(tmp_path_factory.mktemp("nats-cluster")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def module_nats(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildServer]:
    """A NATS server of this module alone. A test that kills or pauses it brings it back."""
    yield from _child(nats_binary, nats_server(tmp_path_factory.mktemp("nats")))


@pytest.fixture(scope="module")
def module_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ChildServer]:
    """A Valkey server of this module alone. A test that kills or pauses it brings it back."""
    yield from _child(valkey_binary, valkey_server(tmp_path_factory.mktemp("valkey")))


def _child(find_binary: Callable[[], Path], server: ChildServer) -> Iterator[ChildServer]:
    try:
        find_binary()
    except NotFoundError as error:
        _missing(str(error))
    with running(server):
        yield server


def _missing(why: str) -> NoReturn:
    if os.environ.get("CI"):
        pytest.fail(f"{why} (in CI this is a failure, not a skip)")
    pytest.skip(why)


def _docker_answers() -> bool:
    import docker
    import docker.errors

    try:
        client = docker.from_env(timeout=2)
    except docker.errors.DockerException:
        return False
    client.close()
    return True


def _nats_in_docker(why: str) -> Iterator[str]:
    if not _docker_answers():
        _missing(f"{why}; no Docker engine answers")
    from testcontainers.community.nats import NatsContainer

    with NatsContainer("nats:2.15-alpine").with_command("-js") as container:
        yield container.nats_uri()


def _valkey_in_docker(why: str) -> Iterator[str]:
    if not _docker_answers():
        _missing(f"{why}; no Docker engine answers")
    from testcontainers.community.redis import RedisContainer

    with RedisContainer("valkey/valkey:9-alpine") as container:
        host, port = container.get_container_host_ip(), container.get_exposed_port(6379)
        yield f"redis://{host}:{port}"
