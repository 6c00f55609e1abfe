"""The front end's names of adapters: what loading and unloading change at once.

A name is a registration, not a residency: unloading forgets the name and frees nothing, and a name
may be registered whose adapter has long left the engine's memory.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from axiom_common.model.adapter import MEBIBYTE
from axiom_sim.engine.refusals import RefusedError, internal_error
from axiom_sim.engine.slots import Adapter


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterStore:
    """Where adapters come from. Without `check_paths` every path holds one, of rank `rank`.

    With it a path must be a folder in PEFT's format, whose `r` is the rank. An adapter takes
    `mib_per_rank` MiB for each rank.
    """

    check_paths: bool
    rank: int
    mib_per_rank: float

    def find(self, name: str, path: str, *, max_rank: int) -> int:
        """Size in bytes; refused when there is nothing at `path` or its rank is too large."""
        rank = self.rank
        if self.check_paths:
            config = Path(path) / "adapter_config.json"
            if not config.is_file():
                raise RefusedError(
                    404,
                    f"Loading lora {name} failed: No adapter found for {path}",
                    kind="NotFoundError",
                )
            try:
                rank = int(json.loads(config.read_bytes())["r"])
            except (ValueError, KeyError, TypeError) as error:
                raise internal_error(f"Call to add_lora method failed: {error!r}") from error
        if rank > max_rank:
            raise internal_error(
                "Call to add_lora method failed: Worker failed with error "
                f"'LoRA rank {rank} is greater than max_lora_rank {max_rank}.', "
                "please check the stack trace above for the root cause"
            )
        return int(rank * self.mib_per_rank * MEBIBYTE)


class AdapterNames:
    """Registered names, in the order of registration."""

    def __init__(self, *, base: str, store: AdapterStore, max_rank: int) -> None:
        self.base = base
        self._store = store
        self._max_rank = max_rank
        self._adapters: dict[str, Adapter] = {}
        self._numbers = 0

    def get(self, name: str) -> Adapter | None:
        """The adapter registered as `name`."""
        return self._adapters.get(name)

    def all(self) -> tuple[Adapter, ...]:
        """All of them."""
        return tuple(self._adapters.values())

    def check_load(self, name: str, path: str, *, in_place: bool) -> Adapter:
        """The adapter that loading would register, or a refusal."""
        if not name or not path:
            raise _bad_input("Both 'lora_name' and 'lora_path' must be provided.")
        if name == self.base:
            raise _bad_input(f"The lora adapter '{name}' conflicts with a served base model.")
        known = self._adapters.get(name)
        if known is not None and not in_place:
            raise _bad_input(
                f"The lora adapter '{name}' has already been loaded. If you want to load the "
                "adapter in place, set 'load_inplace' to True."
            )
        self._numbers += 1
        size_bytes = self._store.find(name, path, max_rank=self._max_rank)
        return Adapter(known.number if known else self._numbers, name, path, size_bytes)

    def register(self, adapter: Adapter) -> None:
        """From now on its name is served."""
        self._adapters[adapter.name] = adapter

    def forget(self, name: str) -> None:
        """The name is no longer served."""
        if not name:
            raise _bad_input("'lora_name' needs to be provided to unload a LoRA adapter.")
        if name not in self._adapters:
            raise RefusedError(
                404, f"The lora adapter '{name}' cannot be found.", kind="NotFoundError"
            )
        del self._adapters[name]


def _bad_input(message: str) -> RefusedError:
    return RefusedError(400, message, kind="InvalidUserInput")
