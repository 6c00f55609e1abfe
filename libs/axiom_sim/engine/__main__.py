"""`axiom-sim-engine`: one simulated engine on one port."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import fields
from typing import NoReturn

from axiom_common.drivers.system_clock import SystemClock
from axiom_common.errors import SettingsError
from axiom_common.ports.engine import SGLANG, VLLM
from axiom_common.runtime.http_server import HttpServer
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import Log, set_up_logging
from axiom_common.runtime.settings import exit_on_bad_settings
from axiom_sim.engine.engine import EngineConfig, SimulatedEngine
from axiom_sim.engine.extension import SimulatedExtension
from axiom_sim.engine.extension_server import ExtensionServer
from axiom_sim.engine.profiles import PROFILES
from axiom_sim.engine.server import VERSION, EngineServer
from axiom_sim.sglang.engine import SglangEngine
from axiom_sim.sglang.server import SglangServer

_DEFAULTS = EngineConfig()
_BOUNDS: dict[str, tuple[float, float]] = {
    "port": (0, 65_535),
    "max_loras": (0, 4096),
    "max_cpu_loras": (0, 65_536),
    "max_lora_rank": (1, 1024),
    "max_num_seqs": (1, 4096),
    "max_model_len": (1, 10_000_000),
    "max_num_queued_reqs": (1, 65_536),
    "block_size": (1, 1024),
    "time_scale": (0.001, 1000),
    "adapter_rank": (1, 1024),
    "answer_tokens_max": (1, 65_536),
}
_DRAIN_S = 1.0
"""Streams are cut at once; this bounds the wait for a client that does not read."""


def main() -> None:
    """Entry point of the console script."""
    arguments = _parser().parse_args()
    try:
        config = _config(arguments)
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging("sim-engine", "info")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    run_process(lambda group, stop: _serve(config, arguments, group, stop))


async def _serve(
    config: EngineConfig,
    arguments: argparse.Namespace,
    group: asyncio.TaskGroup,
    stop: asyncio.Event,
) -> None:
    clock = SystemClock()
    engine: SimulatedEngine
    if arguments.kind == SGLANG:
        engine = sglang = SglangEngine(config, clock)
        app: EngineServer = SglangServer(sglang)
    else:
        engine = SimulatedEngine(config, clock)
        app = EngineServer(engine)
    asgi: EngineServer | ExtensionServer = app
    if arguments.agent_socket:
        extension = SimulatedExtension(
            engine.batch,
            engine.names,
            engine.loop,
            config.profile,
            socket_path=arguments.agent_socket,
            version=VERSION,
        )
        asgi = ExtensionServer(
            app, extension, base=config.served_model_name, token=arguments.agent_token
        )
        extension.attach()
    server = HttpServer(asgi, host=arguments.host, port=arguments.port, drain_s=_DRAIN_S)
    group.create_task(engine.loop.run(), name="steps")
    serving = group.create_task(server.serve(), name="http")
    Log("axiom.sim.engine", clock).info("listening", port=server.port)
    await stop.wait()
    engine.loop.cut_all()
    server.stop()
    await serving


def _config(arguments: argparse.Namespace) -> EngineConfig:
    given = {f.name: getattr(arguments, f.name) for f in fields(EngineConfig)}
    given["profile"] = PROFILES[arguments.profile]
    config = EngineConfig(**given)
    for name, (low, high) in _BOUNDS.items():
        value = getattr(arguments, name)
        if value is not None and not low <= value <= high:
            raise SettingsError(f"{name}: must lie in {low}..{high}, got {value}")
    if config.max_cpu_loras < config.max_loras:
        raise SettingsError("max_cpu_loras: must be at least max_loras")
    if config.max_model_len > config.profile.kv_tokens:
        raise SettingsError(f"max_model_len: must be at most {config.profile.kv_tokens}")
    return config


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="axiom-sim-engine",
        description="An inference engine that behaves like vLLM or SGLang and needs no GPU.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    add = parser.add_argument
    add("--host", default="127.0.0.1", help="address to listen on")
    add("--port", type=int, default=8000, help="port to listen on; 0 picks a free one")
    add("--kind", choices=(VLLM, SGLANG), default=VLLM, help="which server it behaves like")
    add("--served-model-name", default=_DEFAULTS.served_model_name, help="name of the base model")
    add("--profile", choices=sorted(PROFILES), default="h100-8b", help="what steps and loads cost")
    add(
        "--max-loras",
        "--max-loras-per-batch",
        type=int,
        default=_DEFAULTS.max_loras,
        help="HBM slots (SGLang's base model has one of them); 0: no adapters",
    )
    add(
        "--max-cpu-loras",
        "--max-loaded-loras",
        type=int,
        default=_DEFAULTS.max_cpu_loras,
        help="host copies",
    )
    add("--max-lora-rank", type=int, default=_DEFAULTS.max_lora_rank, help="largest rank")
    add("--max-num-seqs", type=int, help="batch size; the profile's when not given")
    add("--max-model-len", type=int, default=_DEFAULTS.max_model_len, help="context, in tokens")
    add(
        "--max-num-queued-reqs",
        type=int,
        default=_DEFAULTS.max_num_queued_reqs,
        help="requests in flight at most; more are answered 503",
    )
    add("--block-size", type=int, default=_DEFAULTS.block_size, help="tokens in a KV block")
    add("--seed", type=int, default=_DEFAULTS.seed, help="of answers and their lengths")
    add("--time-scale", type=float, default=1.0, help="run this many times faster than real")
    add("--adapter-rank", type=int, default=_DEFAULTS.adapter_rank, help="rank of adapters")
    add("--check-paths", action="store_true", help="adapters are PEFT folders, with their own rank")
    add(
        "--answer-tokens-max",
        type=int,
        default=_DEFAULTS.answer_tokens_max,
        help="longest answer that nobody cuts",
    )
    add(
        "--enable-prompt-tokens-details",
        dest="prompt_tokens_details",
        action="store_true",
        help="tell cached tokens in usage",
    )
    add(
        "--enable-request-id-headers",
        dest="request_id_headers",
        action="store_true",
        help="echo x-request-id",
    )
    add("--tell-residency", action="store_true", help="as with Axiom's worker extension")
    add("--agent-socket", default="", help="where Axiom's extension tells; none: it is off")
    add("--agent-token", default="", help="what callers of the extension have to say")
    add("--tell-loaded", action="store_true", help="metrics that name the adapters held")
    return parser


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line and exit code 2, as all of Axiom's processes do."""
        sys.stderr.write(f"settings: {message}\n")
        sys.exit(2)


if __name__ == "__main__":
    main()
