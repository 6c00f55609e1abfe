"""The files of a region's NATS servers, as text."""

from __future__ import annotations

import json
from collections.abc import Iterator

from axiom_cli.nats_config import permissions
from axiom_cli.nats_config.permissions import Node, Permissions
from axiom_cli.nats_config.topology import NatsLimits, NatsServer, NatsTls, NatsTopology
from axiom_common.model.ids import NodeId, RegionId

USERS_FILE = "users.conf"
AXIOM = "AXIOM"
ANSWER_WITHIN = "5m"
"""How long after a request its reply may come; loading an adapter takes the longest."""
_HEAD = "# Made by `axiom nats config` from topology.yaml: change that one, then make this anew.\n"


def nats_files(topology: NatsTopology) -> dict[str, str]:
    """Texts by file name: one configuration a server, and the users, which all servers include."""
    files = {f"{server.name}.conf": _server(topology, server) for server in topology.servers}
    return files | {USERS_FILE: _users_file(topology)}


def _server(topology: NatsTopology, server: NatsServer) -> str:
    limits = topology.limits
    store = f"{topology.store_dir}/{server.name}"
    return _HEAD + "\n".join(
        [
            f"server_name: {_text(server.name)}",
            f"server_tags: [{_text(f'region:{topology.region}')}]",
            f"listen: {_text(f'{server.listen}:{server.client_port}')}",
            f"http: {_text(f'127.0.0.1:{server.monitor_port}')}",
            "",
            *_client_limits(limits),
            "",
            "# An acknowledged write is on disk, on a majority of the servers.",
            "jetstream {",
            f"  store_dir: {_text(store)}",
            "  sync_interval: always",
            f"  max_memory_store: {limits.memory_bytes}",
            f"  max_file_store: {limits.store_bytes}",
            "}",
            *_tls(topology.tls),
            *_cluster(topology, server),
            "",
            f"include {_text(f'./{USERS_FILE}')}",
            "",
        ]
    )


def _client_limits(limits: NatsLimits) -> list[str]:
    return [
        f"max_connections: {limits.connections}",
        f"max_subscriptions: {limits.subscriptions}",
        f"max_payload: {limits.payload_bytes}",
        f"max_control_line: {limits.control_line_bytes}",
        "# Who does not take in time what it is sent is cut off, connects again and resyncs.",
        f"max_pending: {limits.pending_bytes}",
        f"write_deadline: {_text(f'{limits.write_deadline_ms}ms')}",
        'ping_interval: "5s"',
        "ping_max: 2",
    ]


def _tls(tls: NatsTls | None) -> Iterator[str]:
    if tls is not None:
        yield from ("", "tls {", *_certificates(tls, "  "))
        yield from (f"  verify: {_bool(tls.client_certificates)}", "  timeout: 2", "}")


def _cluster(topology: NatsTopology, server: NatsServer) -> Iterator[str]:
    if len(topology.servers) == 1:
        return
    yield from ("", "cluster {", f"  name: {_text(topology.region)}")
    yield f"  listen: {_text(f'{server.listen}:{server.cluster_port}')}"
    yield "  routes: ["
    for peer in topology.servers:
        if peer.name != server.name:
            yield f"    {_text(f'nats-route://{peer.host}:{peer.cluster_port}')}"
    yield "  ]"
    if topology.tls is not None:
        # Whoever can open a route is a server, so a server shows a certificate of the CA.
        yield from ("  tls {", *_certificates(topology.tls, "    "))
        yield from ("    verify: true", "    timeout: 2", "  }")
    yield "}"


def _certificates(tls: NatsTls, indent: str) -> list[str]:
    return [
        f"{indent}ca_file: {_text(tls.ca_file)}",
        f"{indent}cert_file: {_text(tls.cert_file)}",
        f"{indent}key_file: {_text(tls.key_file)}",
    ]


def _users_file(topology: NatsTopology) -> str:
    region, keys = RegionId(topology.region), topology.keys
    nodes = {name: permissions.node(region, NodeId(name)) for name in sorted(keys.nodes)}
    lines = ["accounts {", *_axiom_account(topology, nodes)]
    for name, node in nodes.items():
        lines += _node_account(name, keys.nodes[name], node)
    lines += ["  SYS {", "    users: ["]
    lines += [f"      {{ nkey: {key} }}" for key in keys.system]
    return _HEAD + "\n".join([*lines, "    ]", "  }", "}", "system_account: SYS", ""])


def _axiom_account(topology: NatsTopology, nodes: dict[str, Node]) -> Iterator[str]:
    region, keys, limits = RegionId(topology.region), topology.keys, topology.limits
    services: list[tuple[str, tuple[str, ...], Permissions | None]] = [
        ("operator", keys.operator, None),
        ("gateway", keys.gateway, permissions.gateway(region)),
        ("scheduler", keys.scheduler, permissions.scheduler(region)),
        ("telemetry", keys.telemetry, permissions.telemetry(region)),
    ]
    yield from (f"  {AXIOM} {{", "    jetstream {")
    yield f"      max_memory: {limits.memory_bytes}"
    yield f"      max_file: {limits.store_bytes}"
    yield from (f"      max_streams: {limits.buckets}", "    }", "    exports: [")
    every_node = permissions.node(region, NodeId(permissions.ANY))
    yield from (f"      {{ service: {_text(subject)} }}" for subject in every_node.asks)
    yield from (f"      {{ stream: {_text(subject)} }}" for subject in every_node.hears)
    yield from ("    ]", "    imports: [")
    for name, node in nodes.items():
        yield from (_import("service", _account(name), subject) for subject in node.serves)
    yield from ("    ]", "    users: [")
    for who, user_keys, allowed in services:
        yield f"      # {who}"
        yield from (_user(key, allowed) for key in user_keys)
    yield from ("    ]", "  }")


def _node_account(name: str, user_keys: tuple[str, ...], node: Node) -> Iterator[str]:
    yield from (f"  {_account(name)} {{", "    exports: [")
    yield from (f"      {{ service: {_text(subject)} }}" for subject in node.serves)
    yield from ("    ]", "    imports: [")
    yield from (_import("service", AXIOM, subject) for subject in node.asks)
    yield from (_import("stream", AXIOM, subject) for subject in node.hears)
    yield from ("    ]", "    users: [")
    yield from (_user(key, node.permissions) for key in user_keys)
    yield from ("    ]", "  }")


def _account(node: str) -> str:
    return f"NODE_{node}"


def _import(kind: str, account: str, subject: str) -> str:
    local = permissions.in_domain(subject)
    to = f", to: {_text(local)}" if local != subject else ""
    return f"      {{ {kind}: {{ account: {account}, subject: {_text(subject)} }}{to} }}"


def _user(key: str, allowed: Permissions | None) -> str:
    if allowed is None:
        return f"      {{ nkey: {key} }}"
    lines = [f"      {{ nkey: {key}", "        permissions: {"]
    for action, subjects in (("publish", allowed.publish), ("subscribe", allowed.subscribe)):
        # A subject once, where two needs share it.
        lines += [f"          {action}: ["]
        lines += [f"            {_text(subject)}" for subject in dict.fromkeys(subjects)]
        lines += ["          ]"]
    if allowed.answers:
        lines += [f'          allow_responses: {{ max: 1, expires: "{ANSWER_WITHIN}" }}']
    return "\n".join([*lines, "        }", "      }"])


def _text(value: str) -> str:
    """A quoted string; `$` in it is no variable."""
    return json.dumps(value)


def _bool(value: bool) -> str:
    return "true" if value else "false"
