"""Which vLLM this extension understands: versions it was tested on, and what it touches in them.

Half of what it reads is private to vLLM. So it asks for both before it touches anything: a version
of the list, and every attribute by name. One miss and it stays off.
"""

from __future__ import annotations

import importlib
from typing import Any

from axiom_vllm.messages import NO_LORA, UNKNOWN_INTERNALS, UNKNOWN_VERSION

VERSIONS = ("0.32.",)

WORKER_MANAGER = (
    "_adapter_manager",
    "_apply_adapters",
    "_load_adapter",
    "add_adapter",
    "pin_adapter",
    "remove_adapter",
    "remove_all_adapters",
)
"""Of the worker's `model_runner.lora_manager`, LRUCacheWorkerLoRAManager."""
ADAPTER_MANAGER = (
    "_active_adapters",
    "_registered_adapters",
    "activate_adapter",
    "add_adapter",
    "capacity",
    "deactivate_adapter",
    "lora_index_to_id",
    "lora_slots",
    "remove_oldest_adapter",
)
"""Of its `_adapter_manager`, LRUCacheLoRAModelManager."""
LRU_CACHE = ("order", "touch")
"""Of its two caches, AdapterLRUCache."""
SERVING_MODELS = ("lora_id_counter", "lora_requests", "lora_resolver_lock", "is_base_model")
"""Of the API server's `openai_serving_models`, OpenAIServingModels."""


def installed_version() -> str:
    """Of the vLLM that this process runs."""
    return str(importlib.import_module("vllm").__version__)


def lora_request(number: int, name: str, path: str) -> Any:
    """vLLM's own word for one adapter."""
    request = importlib.import_module("vllm.lora.request").LoRARequest
    return request(lora_name=name, lora_int_id=number, lora_path=path)


def worker_problem(worker: Any, version: str) -> tuple[str, str] | None:
    """(reason, detail) why the extension can't work in this worker; None when it can."""
    if not version.startswith(VERSIONS):
        return UNKNOWN_VERSION, version
    runner = getattr(worker, "model_runner", None)
    if runner is None:
        return UNKNOWN_INTERNALS, "model_runner"
    if getattr(runner, "lora_config", None) is None:
        return NO_LORA, "start vLLM with --enable-lora"
    manager = getattr(runner, "lora_manager", None)
    missing = _missing(manager, WORKER_MANAGER, "lora_manager")
    if not missing:
        adapters = manager._adapter_manager  # type: ignore[union-attr]
        missing = _missing(adapters, ADAPTER_MANAGER, "_adapter_manager")
        if not missing:
            missing = _missing(adapters._active_adapters, LRU_CACHE, "_active_adapters")
            missing += _missing(adapters._registered_adapters, LRU_CACHE, "_registered_adapters")
    return (UNKNOWN_INTERNALS, ", ".join(missing)) if missing else None


def server_problem(state: Any) -> tuple[str, str] | None:
    """(reason, detail) why the extension can't work in this API server; None when it can."""
    missing = _missing(state, ("engine_client", "openai_serving_models"), "app.state")
    if not missing:
        missing = _missing(state.engine_client, ("collective_rpc",), "engine_client")
        models = state.openai_serving_models
        missing += _missing(models, SERVING_MODELS, "openai_serving_models")
    return (UNKNOWN_INTERNALS, ", ".join(missing)) if missing else None


def numbers_in_use(runner: Any) -> set[int]:
    """The adapters of the requests that this worker has begun and not ended."""
    lora_state = getattr(runner, "lora_state", None)
    if lora_state is not None:
        requests = lora_state.lora_requests.values()
    else:
        requests = (request.lora_request for request in runner.requests.values())
    return {request.lora_int_id for request in requests if request is not None}


def _missing(holder: Any, names: tuple[str, ...], what: str) -> list[str]:
    return [f"{what}.{name}" for name in names if not hasattr(holder, name)]
