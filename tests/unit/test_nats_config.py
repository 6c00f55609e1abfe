"""NATS in production form: what is generated, for whom, and what is refused to be generated."""

from __future__ import annotations

import base64
import re
import secrets
from pathlib import Path

import nkeys
import pytest
import yaml
from typer.testing import CliRunner

from axiom_cli.__main__ import app
from axiom_cli.nats_config import permissions
from axiom_cli.nats_config.command import ADMIN_FOLDER, ADMIN_KEY
from axiom_cli.nats_config.files import USERS_FILE, nats_files
from axiom_cli.nats_config.topology import NatsKeys, NatsServer, NatsTopology, read_topology
from axiom_common.drivers.nats_connection import inbox_of
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.errors import SettingsError
from axiom_common.model.ids import NodeId, RegionId
from axiom_common.runtime.settings import ServiceSettings, read_secret
from axiom_common.testing.bus import matches
from axiom_common.wire import keys, subjects

DEPLOYED = Path(__file__).parents[2] / "deploy" / "nats"
REGION = RegionId("eu")
EXAMPLE: dict[str, object] = yaml.safe_load((DEPLOYED / "eu-west" / "topology.yaml").read_text())


def user() -> tuple[str, str]:
    """Seed and public key of a new user."""
    seed = nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_USER)
    return seed.decode(), nkeys.from_seed(bytearray(seed)).public_key.decode()


def test_what_is_deployed_is_what_the_generator_makes() -> None:
    for topology in DEPLOYED.glob("*/topology.yaml"):
        made = nats_files(read_topology(topology))
        there = {path.name: path.read_text() for path in topology.parent.glob("*.conf")}
        assert made == there
    assert (DEPLOYED / "eu-west" / USERS_FILE).exists()


def test_no_seed_is_ever_committed() -> None:
    for path in DEPLOYED.rglob("*"):
        assert not path.is_file() or not re.search(r"\bS[A-Z2-7]{57}\b", path.read_text())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"servers": []}, "servers"),
        ({"servers": [{"name": n, "host": n} for n in ("a", "b")]}, "even number"),
        ({"servers": [{"name": "a", "host": h} for h in "xyz"]}, "one name"),
        ({"region": "eu.west"}, "region"),
        ({"keys": {"gateway": ["U" + "A" * 55]}}, "check sum"),
        ({"keys": {"gateway": [user()[0]]}}, "keys.gateway"),
        ({"keys": {"nodes": {"a b": []}}}, "keys.nodes"),
        ({"store_dir": 'a"b'}, "store_dir"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_topology_is_one_line_and_writes_nothing(
    change: dict[str, object], why: str, tmp_path: Path
) -> None:
    wrong = tmp_path / "topology.yaml"
    wrong.write_text(yaml.safe_dump(EXAMPLE | change))
    result = CliRunner().invoke(app, ["nats", "config", str(wrong), "--out", str(tmp_path / "out")])
    assert result.exit_code == 2
    [line] = result.stderr.splitlines()
    assert why in line
    assert not (tmp_path / "out").exists()


def test_a_key_is_one_users(tmp_path: Path) -> None:
    _, key = user()
    with pytest.raises(ValueError, match="twice"):
        NatsKeys(gateway=(key,), nodes={"n1": (key,)})


def test_two_keys_of_a_user_may_do_the_same() -> None:
    (_, old), (_, new) = user(), user()
    server = NatsServer(name="s", host="h")
    text = nats_files(
        NatsTopology(region="eu", servers=(server,), keys=NatsKeys(nodes={"n1": (old, new)}))
    )[USERS_FILE]
    first, second = (text.partition(f"nkey: {key}")[2].partition("nkey:")[0] for key in (old, new))
    assert first.count("axiom.v1.") > 2
    assert re.findall(r'"[^"]+"', first) == re.findall(r'"[^"]+"', second)


def test_nodes_share_nothing_but_what_tells_nothing_of_others() -> None:
    one, two = (permissions.node(REGION, NodeId(name)) for name in ("n1", "n2"))
    shared = set(one.asks) & set(two.asks)
    assert all(".STREAM.INFO." in subject for subject in shared)
    assert not set(one.hears) & set(two.hears)
    assert not set(one.serves) & set(two.serves)
    for said in one.permissions.publish:
        heard_by_two = two.permissions.subscribe
        assert not any(matches(subject, said) for subject in heard_by_two)
    assert not any(">" in subject or "*" in subject.split(".") for subject in one.asks)


def test_an_agent_can_reach_no_consumer_and_no_record_by_a_request_s_body() -> None:
    asks = permissions.node(REGION, NodeId("n1")).asks
    assert not [s for s in asks if "CONSUMER" in s or "MSG.GET" in s or "CREATE" in s]


def test_an_agent_may_do_what_it_does() -> None:
    node = permissions.node(REGION, NodeId("n1"))
    incarnations = keys.incarnation_bucket(REGION)
    assert subjects.node_report(REGION, NodeId("n1")) in node.permissions.publish
    assert f"$KV.{incarnations}.n1" in node.permissions.publish
    reply = f"{inbox_of('node-agent.n1')}.abc.def"
    assert any(matches(subject, reply) for subject in node.permissions.subscribe)


def test_the_command_makes_keys_that_fit_and_never_overwrites_one(tmp_path: Path) -> None:
    seed_file = tmp_path / "own.nk"
    made = CliRunner().invoke(app, ["nats", "key", str(seed_file)])
    assert made.exit_code == 0
    public = made.stdout.strip()
    assert NatsKeys(gateway=(public,)).gateway == (public,)
    seed = NatsCredentials(nkey_seed_file=seed_file).read_seed()
    assert seed is not None
    assert nkeys.from_seed(bytearray(seed.encode())).public_key.decode() == public
    assert seed_file.stat().st_mode & 0o077 == 0
    again = CliRunner().invoke(app, ["nats", "key", str(seed_file), "--json"])
    assert again.exit_code == 1
    assert '"conflict"' in again.stdout
    assert NatsCredentials(nkey_seed_file=seed_file).read_seed() == seed


def test_a_region_on_one_host_gets_its_keys_once_and_keeps_them(tmp_path: Path) -> None:
    given = user()[1]
    topology = tmp_path / "topology.yaml"
    topology.write_text(
        yaml.safe_dump(
            {
                "region": "eu",
                "servers": [{"name": "nats", "host": "nats"}],
                "keys": {"operator": [given], "nodes": {"n1": [], "gateway": []}},
            }
        )
    )
    out = tmp_path / "out"
    setup = ["nats", "setup", str(topology), "--out", str(out)]
    assert CliRunner().invoke(app, setup).exit_code == 0
    first = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    seeds = [path for path in first if path.suffix == ".nk"]
    assert sorted(path.parent.name for path in seeds) == [
        "gateway",
        "node-agent.gateway",
        "node-agent.n1",
        "scheduler",
        "system",
        "telemetry",
    ]
    key = out / ADMIN_FOLDER / ADMIN_KEY
    assert all(path.stat().st_mode & 0o077 == 0 for path in (*seeds, key, key.parent))
    assert read_secret(key) == key.read_text().strip()
    users = (out / "server" / USERS_FILE).read_text()
    assert given in users
    for path in seeds:
        seed = NatsCredentials(nkey_seed_file=path).read_seed()
        assert seed is not None
        assert nkeys.from_seed(bytearray(seed.encode())).public_key.decode() in users
    assert CliRunner().invoke(app, setup).exit_code == 0
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == first


def test_setup_puts_nothing_in_the_place_of_what_is_no_seed(tmp_path: Path) -> None:
    topology = tmp_path / "topology.yaml"
    topology.write_text(yaml.safe_dump(EXAMPLE | {"keys": {}}))
    broken = tmp_path / "out" / "users" / "gateway" / "nats.nk"
    broken.parent.mkdir(parents=True)
    broken.write_text("not a seed\n")
    setup = ["nats", "setup", str(topology), "--out", str(tmp_path / "out"), "--json"]
    refused = CliRunner().invoke(app, setup)
    assert refused.exit_code == 2
    assert str(broken) in refused.stdout.replace("\n", "")
    assert broken.read_text() == "not a seed\n"
    assert not (tmp_path / "out" / "server").exists()


def test_a_seed_is_found_below_a_remark_and_above_its_public_key(tmp_path: Path) -> None:
    seed, public = user()
    path = tmp_path / "own.nk"
    path.write_text(f"# of gpu-host-7\n{seed}\n{public}\n")
    assert NatsCredentials(nkey_seed_file=path).read_seed() == seed
    assert NatsCredentials().read_seed() is None


def _other_kind() -> str:
    return nkeys.encode_seed(secrets.token_bytes(32), nkeys.PREFIX_BYTE_ACCOUNT).decode()


def _mistyped() -> str:
    seed = user()[0]
    raw = bytearray(base64.b32decode(seed + "=" * (-len(seed) % 8)))
    raw[10] ^= 1
    return base64.b32encode(raw).decode().rstrip("=")


@pytest.mark.parametrize(
    "content",
    ["", "SU", user()[1], _other_kind(), _mistyped(), user()[0][:-4], "SU" + "!" * 56],
    ids=["nothing", "short", "public", "other-kind", "mistyped", "cut", "no-base32"],
)
def test_what_is_no_seed_is_a_wrong_setting_that_does_not_tell_it(
    content: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.nk"
    path.write_text(content)
    with pytest.raises(SettingsError, match=r"nats_nkey_seed_file.*own\.nk") as told:
        NatsCredentials(nkey_seed_file=path).read_seed()
    assert not content or content not in str(told.value).replace("begins with SU", "")


def test_files_that_are_not_there_or_do_not_fit_are_named(tmp_path: Path) -> None:
    absent, wrong = tmp_path / "absent.pem", tmp_path / "wrong.pem"
    wrong.write_text("no certificate")
    for credentials, name in (
        (NatsCredentials(ca_file=absent), "nats_ca_file"),
        (NatsCredentials(ca_file=wrong), "nats_ca_file"),
        (NatsCredentials(cert_file=absent, key_file=absent), "nats_cert_file"),
        (NatsCredentials(cert_file=wrong, key_file=wrong), "nats_cert_file"),
    ):
        with pytest.raises(SettingsError, match=name):
            credentials.tls()
    with pytest.raises(SettingsError, match="nats_nkey_seed_file"):
        NatsCredentials(nkey_seed_file=absent).read_seed()
    assert NatsCredentials().tls() is None


def test_a_certificate_without_its_key_is_no_setting() -> None:
    with pytest.raises(ValueError, match="go together"):
        ServiceSettings(nats_cert_file=Path("a.pem"))
    settings = ServiceSettings(nats_nkey_seed_file=Path("a.nk"), nats_ca_file=Path("b.pem"))
    assert NatsCredentials.of(settings) == NatsCredentials(
        nkey_seed_file=Path("a.nk"), ca_file=Path("b.pem")
    )
