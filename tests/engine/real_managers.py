"""Runs in the engine's environment: prints, as JSON, what vLLM's own classes say to the extension.

usage: real_managers.py SEED STEPS      (PYTHONPATH: the repository, libs)

`story` is `play` on the real managers, which hold no model here. `problem` is what the extension
says of them, `strange` of another version and of missing parts.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import vllm
from tests.vllm_stand_ins import Copy, Worker, play
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.lora.model_manager import AdapterLRUCache, LRUCacheLoRAModelManager
from vllm.lora.request import LoRARequest
from vllm.lora.worker_manager import LRUCacheWorkerLoRAManager

from axiom_vllm.known import server_problem, worker_problem


class Managers(LRUCacheWorkerLoRAManager):
    """The worker manager over an adapter manager, without weights: a load makes an empty copy."""

    def __init__(self, slots: int, capacity: int) -> None:
        adapters = LRUCacheLoRAModelManager.__new__(LRUCacheLoRAModelManager)
        adapters.lora_config = SimpleNamespace(max_loras=slots, max_cpu_loras=capacity)
        adapters._registered_adapters = AdapterLRUCache(capacity, adapters.deactivate_adapter)
        adapters._active_adapters = AdapterLRUCache(slots, adapters._deactivate_adapter)
        adapters.lora_index_to_id = [None] * slots
        adapters.modules = {}
        adapters._is_moe = False
        adapters._validate_moe_lora_format = lambda copy: None
        adapters._create_merged_loras_inplace = lambda copy: None
        self._adapter_manager = adapters

    def _load_adapter(self, lora_request: LoRARequest) -> Any:
        return Copy(lora_request.lora_int_id)


def request(**fields: Any) -> LoRARequest:
    return LoRARequest(lora_path="/somewhere", **fields)


def main() -> None:
    seed, steps = (int(argument) for argument in sys.argv[1:])
    models = OpenAIServingModels.__new__(OpenAIServingModels)
    models.lora_requests, models.lora_id_counter, models.lora_resolver_lock = {}, None, {}
    engine_client = SimpleNamespace(collective_rpc=None)
    worker = Worker(Managers(2, 4))
    story = play(worker.manager, request, seed=seed, steps=steps)
    problem = worker_problem(worker, vllm.__version__)
    problem = problem or server_problem(
        SimpleNamespace(engine_client=engine_client, openai_serving_models=models)
    )
    strange = [worker_problem(worker, "9.9.0")]
    del worker.manager._adapter_manager.lora_index_to_id
    strange.append(worker_problem(worker, vllm.__version__))
    print(json.dumps({"story": story, "problem": problem, "strange": strange}))


if __name__ == "__main__":
    main()
