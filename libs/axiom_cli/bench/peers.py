"""Other routers: how each is started in front of the same engines.

Each as its own documentation starts it, with logs off, on one process. sglang-router looks at
prompts (cache_aware, its default); vllm-router takes turns, which is the cheapest that it can do:
its cache-aware policy asks every engine to tokenise every prompt.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from axiom_cli.stack.servers import HOST

MODEL = "bench"
"""The base model, by the name that clients use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """How a router is started, on which port it serves."""

    argv: tuple[str, ...]
    port: int
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Where a router may write, on which ports it may listen, in front of which engines it goes."""

    folder: Path
    port: int
    metrics_port: int
    engines: range

    @property
    def engine_urls(self) -> list[str]:
        """All engines."""
        return [f"http://{HOST}:{port}" for port in self.engines]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A router of somebody else: where its program may lie, and how it is started."""

    program: str
    started: Callable[[str, Setting], Router]

    def installed(self, peers_dir: Path) -> str | None:
        """Its program in the folder of the peers, else of the PATH; None: it is not here."""
        path = peers_dir / self.program
        return str(path.absolute()) if path.is_file() else shutil.which(path.name)


def _nginx(program: str, at: Setting) -> Router:
    servers = "".join(f"server {HOST}:{port}; " for port in at.engines)
    config = at.folder / "nginx.conf"
    temporary = "".join(
        f"{kind}_temp_path {at.folder.absolute()}/{kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    config.write_text(
        f"worker_processes 1; daemon off; pid {at.folder.absolute()}/nginx.pid;\n"
        "error_log stderr error; events { worker_connections 8192; }\n"
        "http { access_log off; keepalive_requests 100000000; client_max_body_size 64m;\n"
        f"client_body_buffer_size 1m;\n{temporary}"
        f"upstream engines {{ {servers} keepalive 256; keepalive_requests 100000000; }}\n"
        f"server {{ listen {HOST}:{at.port}; location / {{ proxy_pass http://engines;\n"
        'proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off; } } }\n'
    )
    return Router(argv=(program, "-e", "stderr", "-c", str(config.absolute())), port=at.port)


def _litellm(program: str, at: Setting) -> Router:
    config = at.folder / "litellm.yaml"
    models = [
        {
            "model_name": MODEL,
            "litellm_params": {
                "model": f"openai/{MODEL}",
                "api_base": f"{url}/v1",
                "api_key": "none",
            },
        }
        for url in at.engine_urls
    ]
    settings = {
        "model_list": models,
        "router_settings": {"routing_strategy": "simple-shuffle", "num_retries": 0},
        "litellm_settings": {"telemetry": False},
    }
    config.write_text(yaml.safe_dump(settings))
    argv = (program, "--config", str(config), *_address(at), "--num_workers", "1")
    environment = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR"}
    return Router(argv=argv, port=at.port, environment=environment)


def _sglang_router(program: str, at: Setting) -> Router:
    policy = ("--policy", "cache_aware", "--log-level", "warn")
    return Router(argv=(program, "launch", *_rust(at), *policy), port=at.port)


def _vllm_router(program: str, at: Setting) -> Router:
    policy = ("--policy", "round_robin", "--log-level", "warning")
    return Router(argv=(program, *_rust(at), *policy), port=at.port)


def _address(at: Setting) -> tuple[str, ...]:
    return ("--host", HOST, "--port", str(at.port))


def _rust(at: Setting) -> tuple[str, ...]:
    metrics = ("--prometheus-host", HOST, "--prometheus-port", str(at.metrics_port))
    return (*_address(at), "--worker-urls", *at.engine_urls, *metrics)


PEERS: dict[str, Peer] = {
    "nginx": Peer(program="nginx/usr/sbin/nginx", started=_nginx),
    "litellm": Peer(program="litellm/bin/litellm", started=_litellm),
    "sglang-router": Peer(program="sglang-router/bin/sglang-router", started=_sglang_router),
    "vllm-router": Peer(program="vllm-router/bin/vllm-router", started=_vllm_router),
}
