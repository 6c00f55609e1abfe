"""The local stack's processes, and the examples: settings that the services take."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from axiom_cli.declarations import Kind, parse_declarations
from axiom_cli.stack.topology import (
    ADMIN_KEY,
    BASE_MODEL,
    GATEWAY,
    GATEWAY_OPS,
    EngineShape,
    Service,
    StackOptions,
    declared_adapters,
    engine_processes,
    port_names,
    services,
)
from axiom_common.runtime.settings import ServiceSettings, load_settings
from axiom_gateway.settings import GatewaySettings
from axiom_node_agent.settings import AgentSettings
from axiom_scheduler.settings import SchedulerSettings
from axiom_sim.engine.__main__ import _config, _parser
from axiom_telemetry.settings import TelemetrySettings

EXAMPLES = Path(__file__).parents[2] / "examples"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "axiom_gateway": GatewaySettings,
    "axiom_node_agent": AgentSettings,
    "axiom_scheduler": SchedulerSettings,
    "axiom_telemetry": TelemetrySettings,
}


def ports_of(options: StackOptions) -> dict[str, int]:
    return {name: 20_000 + i for i, name in enumerate([*port_names(options), GATEWAY])}


def loaded(service: Service, tmp_path: Path) -> ServiceSettings:
    path = tmp_path / f"{service.name}.yaml"
    path.write_text(yaml.safe_dump(service.settings))
    return load_settings(SETTINGS[service.module], config=path)


def test_every_service_takes_its_settings(tmp_path: Path) -> None:
    options = StackOptions(run_dir=tmp_path)
    ports = ports_of(options)
    assert len(set(ports.values())) == 2 + 4 + 2 + 4
    by_name = {s.name: loaded(s, tmp_path) for s in services(options, ports)}
    assert list(by_name)[-1] == GATEWAY
    assert all(s.port == ports[name] for name, s in by_name.items())  # type: ignore[attr-defined]
    gateway = by_name[GATEWAY]
    assert isinstance(gateway, GatewaySettings)
    assert gateway.ops_port == ports[GATEWAY_OPS]
    assert gateway.admin_key_file == tmp_path / ADMIN_KEY
    urls = {(s.nats_url, s.redis_url) for s in by_name.values()}
    assert urls == {(f"nats://127.0.0.1:{ports['nats']}", f"redis://127.0.0.1:{ports['valkey']}")}


def test_agents_describe_the_engines_as_they_are_started(tmp_path: Path) -> None:
    options = StackOptions(
        run_dir=tmp_path, nodes=3, engine=EngineShape(hbm_slots=2, host_slots=5, max_num_seqs=9)
    )
    ports = ports_of(options)
    engines = {}
    for spec in engine_processes(options, ports):
        arguments = _parser().parse_args(spec.argv[3:])
        engines[spec.name] = (arguments.port, _config(arguments))
    described = {}
    for service in services(options, ports):
        settings = loaded(service, tmp_path)
        if isinstance(settings, AgentSettings):
            described |= {f"{settings.node}.{e.name}": e for e in settings.engines}
    assert set(described) == set(engines) == set(options.engine_ids)
    assert len(engines) == 6
    for name, (port, config) in engines.items():
        told = described[name]
        assert told.url == f"http://127.0.0.1:{port}"
        assert told.base_model == config.served_model_name == BASE_MODEL
        assert (told.hbm_slots, told.host_slots) == (config.max_loras, config.max_cpu_loras)
        assert told.max_lora_rank == config.max_lora_rank
        assert told.max_num_seqs == config.max_num_seqs


def test_existing_servers_are_used_and_not_started(tmp_path: Path) -> None:
    options = StackOptions(run_dir=tmp_path, nats_url="nats://a:1", redis_url="redis://b:2")
    assert not {"nats", "valkey"} & set(port_names(options))
    for service in services(options, ports_of(options)):
        settings = loaded(service, tmp_path)
        assert (settings.nats_url, settings.redis_url) == ("nats://a:1", "redis://b:2")


def test_declared_adapters_fit_the_engines(tmp_path: Path) -> None:
    options = StackOptions(run_dir=tmp_path, adapters=24)
    declared = declared_adapters(options)
    assert len({adapter.name for adapter in declared}) == 24
    assert {adapter.base_model for adapter in declared} == {BASE_MODEL}
    first = engine_processes(options, ports_of(options))[0]
    config = _config(_parser().parse_args(first.argv[3:]))
    assert all(adapter.rank <= config.max_lora_rank for adapter in declared)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("agent", AgentSettings),
        ("gateway", GatewaySettings),
        ("scheduler", SchedulerSettings),
        ("telemetry", TelemetrySettings),
    ],
)
def test_examples_are_taken_by_their_service(name: str, kind: type[ServiceSettings]) -> None:
    settings = load_settings(kind, config=EXAMPLES / f"{name}.yaml")
    assert settings.region == "eu-west"


def test_the_example_of_declarations_is_taken() -> None:
    puts = parse_declarations((EXAMPLES / "adapters.yaml").read_text())
    assert [(put.kind, put.name) for put in puts] == [
        (Kind.BASE_MODEL, "llama-3.1-8b"),
        (Kind.ADAPTER, "acme/sql"),
        (Kind.ADAPTER, "acme/support"),
    ]
