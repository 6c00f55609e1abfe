"""SGLang's ways with adapters.

- srt/lora/lora_registry.py: registered names in the order of use (a look-up is a use), and what was
  ever loaded, which the next request for it loads again.
- srt/managers/tokenizer_control_mixin.py: a load reads into host RAM and registers; beyond
  `--max-loaded-loras` the least recently used name is unloaded. An unload frees both copies.
- srt/lora/mem_pool.py: `--max-loras-per-batch` slots in HBM, taken by the first batch that uses an
  adapter, the least recently used one leaving. The base model keeps one of them to the last.
- srt/lora/lora_manager.py: what a load is refused for, always by a 400.
"""

from __future__ import annotations

from axiom_sim.engine.adapters import AdapterNames, AdapterStore
from axiom_sim.engine.profiles import Tier
from axiom_sim.engine.refusals import RefusedError
from axiom_sim.engine.slots import Adapter, AdapterSlots

_EVER_LOADED_MAX = 4096
BAD_REQUEST = "BadRequestError"


class SglangSlots(AdapterSlots):
    """Slots are taken by use alone: a load stops in host RAM.

    One load more than `loaded_max` fits there, before the least recently used name has to go.
    """

    def __init__(self, *, loras_per_batch: int, loaded_max: int) -> None:
        hbm_slots = max(1, loras_per_batch - 1) if loras_per_batch else 0
        super().__init__(hbm_slots=hbm_slots, host_slots=max(hbm_slots, loaded_max) + 1)

    def load(self, adapter: Adapter) -> Tier:
        """Bring it to host RAM."""
        return self._bring_to_host(adapter)


class SglangNames(AdapterNames):
    """Registered names, least recently used first."""

    def __init__(self, *, base: str, store: AdapterStore, max_rank: int) -> None:
        super().__init__(base=base, store=store, max_rank=max_rank)
        self._paths: dict[str, str] = {}

    def get(self, name: str) -> Adapter | None:
        """The adapter registered as `name`, which counts as a use."""
        adapter = self._adapters.pop(name, None)
        if adapter is not None:
            self._adapters[name] = adapter
        return adapter

    @property
    def ever_loaded(self) -> list[str]:
        """All names that a request may bring back."""
        return list(self._paths)

    def path_of(self, name: str) -> str | None:
        """Where a name that was ever loaded came from."""
        return self._paths.get(name)

    def check_load(self, name: str, path: str, *, in_place: bool = False) -> Adapter:
        """The adapter that loading would register, or a refusal."""
        if name in self._adapters:
            message = f"Failed to load LoRA adapter {name} because it is already loaded"
            raise refused(message)
        try:
            return super().check_load(name, path, in_place=in_place)
        except RefusedError as refusal:
            if refusal.status != 404:
                raise refused(str(refusal)) from refusal
            raise refused(
                "Repo id must be in the form 'repo_name' or 'namespace/repo_name': "
                f"'{path}'. Use `repo_type` argument if needed."
            ) from refusal

    def register(self, adapter: Adapter) -> None:
        """From now on its name is served."""
        super().register(adapter)
        if len(self._paths) >= _EVER_LOADED_MAX:
            del self._paths[next(iter(self._paths))]
        self._paths[adapter.name] = adapter.path

    def forget(self, name: str) -> None:
        """The name is no longer served."""
        if name not in self._adapters:
            raise refused(
                f"LoRA with name {name} does not exist. Loaded LoRAs: {self._adapters.keys()}"
            )
        super().forget(name)


def refused(message: str, status: int = 400) -> RefusedError:
    """A refusal of SGLang's."""
    return RefusedError(status, message, kind=BAD_REQUEST)
