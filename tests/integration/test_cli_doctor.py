"""What the doctor finds at the URLs of servers."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import yaml
from aiohttp import web
from tests.answering import problem, server
from tests.nats_cluster import NatsCluster, make_seed
from tests.servers import free_port

from axiom_cli.admin import Target
from axiom_cli.checks import Check, Verdict
from axiom_cli.doctor import Wanted, examine, settings_of_servers
from axiom_common.drivers.nats_credentials import NatsCredentials


async def found(name: str, wanted: Wanted) -> Check:
    (check,) = [check for check in await examine(wanted) if check.name == name]
    return check


def nobody() -> Target:
    return Target(f"http://127.0.0.1:{free_port()}")


async def redis_check(url: str) -> Check:
    return await found("redis", Wanted(port=0, gateway=nobody(), redis_url=url))


async def test_a_server_that_answers_is_well(redis_url: str) -> None:
    assert (await redis_check(redis_url)).verdict is Verdict.OK


@pytest.mark.parametrize("scheme", ["redis", "redis+cluster"])
async def test_every_kind_of_url_is_asked(scheme: str) -> None:
    check = await redis_check(f"{scheme}://127.0.0.1:{free_port()}")
    assert check.verdict is Verdict.BROKEN
    assert "connect" in check.detail.lower()
    assert check.advice


async def test_passwords_of_urls_are_not_shown() -> None:
    where = f"zoe:pa55@127.0.0.1:{free_port()}"
    wanted = Wanted(
        port=0,
        gateway=nobody(),
        nats_url=f"nats://{where},nats://{where}",
        redis_url=f"redis://{where}",
    )
    shown = str(await examine(wanted))
    assert "pa55" not in shown
    assert "zoe" not in shown
    assert shown.count(f"//{where.partition('@')[2]}") == 3


async def test_a_url_that_is_none_is_told() -> None:
    check = await redis_check("redis+cluster://nowhere")
    assert check.verdict is Verdict.BROKEN
    assert "host:port" in check.detail


@pytest.mark.parametrize(("status", "advice"), [(401, "--key-file"), (403, "axiom keys set-role")])
async def test_a_gateway_that_does_not_let_one_in_says_what_to_do(status: int, advice: str) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return problem(status, "no")

    async with server(refuse) as url:
        checks = await examine(Wanted(port=0, gateway=Target(url)))
    (check,) = [check for check in checks if check.name == "gateway"]
    assert check.verdict is Verdict.BROKEN
    assert advice in check.detail


async def test_nats_of_production_is_asked_as_a_service_asks_it(
    nats_cluster: NatsCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "gateway.yaml"
    file.write_text(yaml.safe_dump(nats_cluster.settings("gateway") | {"hold_ms": 5.0}))

    async def asked() -> Check:
        servers = settings_of_servers(file)
        given = {"nats_url": servers.nats_url, "credentials": NatsCredentials.of(servers)}
        return await found("nats", Wanted(port=0, gateway=nobody(), **given))  # type: ignore[arg-type]

    check = await asked()
    assert check.verdict is Verdict.UNCHECKED
    assert "this user may not ask" in check.detail
    assert "operator" in check.advice
    seed = nats_cluster.credentials("operator").nkey_seed_file
    monkeypatch.setenv("AXIOM_NATS_NKEY_SEED_FILE", str(seed))
    assert (await asked()).verdict is Verdict.OK
    monkeypatch.setenv("AXIOM_NATS_NKEY_SEED_FILE", str(tmp_path / "none"))
    check = await asked()
    assert check.verdict is Verdict.BROKEN
    assert check.detail == f"nats_nkey_seed_file: {tmp_path / 'none'}: No such file or directory"


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({"ca_file": None, "cert_file": None}, Verdict.UNCHECKED, "name nats_ca_file as services"),
        ({"cert_file": None}, Verdict.UNCHECKED, "name nats_cert_file and nats_key_file"),
        ({"nkey_seed_file": None}, Verdict.UNCHECKED, "name nats_nkey_seed_file as services"),
        ({"nkey_seed_file": "other.nk"}, Verdict.BROKEN, "users.conf"),
        ({"nkey_seed_file": "system"}, Verdict.UNCHECKED, "this user's account has none"),
    ],
)
async def test_a_nats_that_lets_one_in_no_further_is_not_said_to_be_away(
    nats_cluster: NatsCluster,
    tmp_path: Path,
    change: dict[str, str | None],
    verdict: Verdict,
    words: str,
) -> None:
    credentials = dataclasses.replace(nats_cluster.credentials("operator"), **change)  # type: ignore[arg-type]
    if change.get("nkey_seed_file") == "other.nk":
        make_seed(tmp_path / "other.nk")
        credentials = dataclasses.replace(credentials, nkey_seed_file=tmp_path / "other.nk")
    elif change.get("nkey_seed_file") == "system":
        seed = nats_cluster.credentials("system").nkey_seed_file
        credentials = dataclasses.replace(credentials, nkey_seed_file=seed)
    wanted = Wanted(port=0, gateway=nobody(), nats_url=nats_cluster.url, credentials=credentials)
    check = await found("nats", wanted)
    assert check.verdict is verdict
    assert words in f"{check.detail} {check.advice}"
    assert "nats-server -js" not in check.advice


@pytest.mark.parametrize(("answers", "verdict"), [(True, Verdict.UNCHECKED), (False, Verdict.OK)])
async def test_servers_that_nobody_named_are_asked_for_where_there_is_no_gateway_only(
    answers: bool, verdict: Verdict
) -> None:
    async def refuse(request: web.Request) -> web.Response:
        return problem(401, "no")

    async with server(refuse) as url:
        checks = await examine(Wanted(port=0, gateway=Target(url) if answers else nobody()))
    by_name = {check.name: check.verdict for check in checks}
    assert (by_name["nats"], by_name["redis"]) == (verdict, verdict)
