"""SGLang's routes (srt/entrypoints/http_server.py) over the simulated engine.

The OpenAI ones answer as the simulated vLLM does; an error stands at the top of the body. Calls for
adapters answer with `success`, `error_message` and `loaded_adapters` (srt/managers/io_struct.py).
"""

from __future__ import annotations

from typing import Any

from axiom_common.drivers.engine_client import HEALTH_PATH, METRICS_PATH, MODELS_PATH
from axiom_common.drivers.sglang_engine import (
    GENERATE_PATH,
    LOAD_PATH,
    LOADS_PATH,
    UNLOAD_PATH,
)
from axiom_sim.engine.asgi import Reply, Request, while_connected
from axiom_sim.engine.openai_api import read_completion
from axiom_sim.engine.refusals import RefusedError
from axiom_sim.engine.server import EngineServer, json_reply, text_field
from axiom_sim.sglang.engine import SglangEngine
from axiom_sim.sglang.metrics_page import CONTENT_TYPE, loads

SHARED = (
    *("/v1/chat/completions", "/v1/completions", "/v1/embeddings", MODELS_PATH),
    *("/sim/stats", "/sim/faults"),
)
"""Routes that both kinds of servers have."""


class SglangServer(EngineServer):
    """The ASGI app of one engine."""

    def __init__(self, engine: SglangEngine) -> None:
        super().__init__(engine)
        self._sglang = engine
        self._routes = {path: self._routes[path] for path in SHARED} | {
            LOAD_PATH: {"POST": self._load},
            UNLOAD_PATH: {"POST": self._unload},
            METRICS_PATH: {"GET": self._metrics},
            LOADS_PATH: {"GET": self._loads},
            HEALTH_PATH: {"GET": self._health},
            "/health_generate": {"GET": self._health},
            GENERATE_PATH: {"POST": self._native},
            "/model_info": {"GET": self._model_info},
            "/get_model_info": {"GET": self._model_info},
        }

    def _refuse(self, refused: RefusedError) -> Reply:
        body = {
            "object": "error",
            "message": str(refused),
            "type": refused.kind,
            "param": refused.param,
            "code": refused.status,
        }
        return json_reply(body, status=refused.status)

    async def _load(self, request: Request) -> Reply:
        body = await request.read_object()
        name, path = text_field(body, "lora_name"), text_field(body, "lora_path")
        try:
            await self._sglang.load(name, path)
        except RefusedError as refused:
            return self._updated(str(refused))
        return self._updated()

    async def _unload(self, request: Request) -> Reply:
        name = text_field(await request.read_object(), "lora_name")
        try:
            await self._sglang.unload(name)
        except RefusedError as refused:
            return self._updated(str(refused))
        return self._updated()

    def _updated(self, problem: str | None = None) -> Reply:
        """The outcome of a load or unload."""
        listed = {adapter.name: adapter.path for adapter in self._sglang.names.all()}
        body = {
            "success": problem is None,
            "error_message": problem or "",
            "loaded_adapters": listed if problem is None else None,
        }
        return json_reply(body, status=200 if problem is None else 400)

    async def _metrics(self, _: Request) -> Reply:
        page = self._sglang.metrics.page(self._sglang.batch)
        return Reply(page.encode(), content_type=CONTENT_TYPE)

    async def _loads(self, _: Request) -> Reply:
        config = self._sglang.config
        seats = config.max_num_seqs or config.profile.max_num_seqs
        told = loads(self._sglang.batch, max_loras=config.max_loras, max_num_seqs=seats)
        return json_reply(told)

    async def _model_info(self, _: Request) -> Reply:
        name = self._sglang.config.served_model_name
        return json_reply({"model_path": name, "tokenizer_path": name, "is_generation": True})

    async def _native(self, request: Request) -> Reply:
        """SGLang's own way to ask: text or token ids, an adapter by its name in `lora_path`."""
        body = await request.read_object()
        model = self._sglang.config.served_model_name
        if adapter := body.get("lora_path"):
            model = f"{model}:{adapter}"
        sampling = body.get("sampling_params") or {}
        asked: dict[str, Any] = {
            "model": model,
            "prompt": body.get("text") or body.get("input_ids"),
            "max_tokens": sampling.get("max_new_tokens", 128),
            "ignore_eos": sampling.get("ignore_eos", False),
        }
        question = read_completion(asked)
        await self._sglang.prepare(question.model)
        generation = self._sglang.ask(question, None)
        try:
            await while_connected(request, generation.stream.next())
        finally:
            self._sglang.loop.abort(generation.sequence)
        sequence = generation.sequence
        return json_reply(
            {
                "text": "".join(generation.words),
                "meta_info": {
                    "id": generation.answer.id,
                    "finish_reason": {"type": sequence.ends_by, "length": len(generation.words)},
                    "prompt_tokens": sequence.prompt_tokens,
                    "completion_tokens": len(generation.words),
                    "cached_tokens": sequence.cached_tokens,
                },
            }
        )
