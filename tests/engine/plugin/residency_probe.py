"""Lets a vLLM under test tell which adapters it holds: GET /agent/lora_residency.

After `?hide` it answers as stock vLLM does, until `?show`, but for `?judge`: so an agent beside it
has to infer what the judge of the inference can ask for.

Given to vLLM 0.32 as `--worker-extension-cls residency_probe.WorkerExtension --middleware
residency_probe.Middleware`, with this folder on PYTHONPATH. The worker half reads private
attributes of that version; it is the judge of what Axiom infers, not a part of Axiom.
"""

from __future__ import annotations

import json
from typing import Any

PATH = "/agent/lora_residency"
TIMEOUT_S = 2


class WorkerExtension:
    """Mixed into the worker, so `self` is one."""

    model_runner: Any

    def adapter_residency(self) -> dict[str, Any]:
        """Numbers of adapters by slot, and of host copies, oldest first."""
        adapters = self.model_runner.lora_manager._adapter_manager
        return {
            "gpu_slots": list(adapters.lora_index_to_id),
            "cpu_cached": [int(number) for number in adapters.list_adapters()],
            "max_loras": adapters.lora_slots,
            "max_cpu_loras": adapters.capacity,
        }


class Middleware:
    """Answers the one path, passes everything else on."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.hidden = False

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["path"] != PATH:
            await self.app(scope, receive, send)
            return
        query = scope["query_string"]
        if query in (b"hide", b"show"):
            self.hidden = query == b"hide"
        elif self.hidden and query != b"judge":
            await self.app(scope, receive, send)
            return
        state = scope["app"].state
        workers = await state.engine_client.collective_rpc("adapter_residency", timeout=TIMEOUT_S)
        served = state.openai_serving_models.lora_requests
        names = {name: request.lora_int_id for name, request in served.items()}
        body = json.dumps({"names": names, "workers": workers}).encode()
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
