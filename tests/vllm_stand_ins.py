"""Stand-ins for the parts of vLLM 0.32 that the extension works on, without torch or models.

They keep adapters as vLLM does: two LRU caches, slots, and a worker manager above. The engine stage
replays `play` on vLLM's own classes and compares the stories, so they can't drift apart unseen.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType, SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Request:
    """LoRARequest."""

    lora_name: str
    lora_int_id: int
    lora_path: str = "/somewhere"
    load_inplace: bool = False


@dataclass(frozen=True)
class Copy:
    """LoRAModel."""

    id: int


class Cache:
    """AdapterLRUCache: what leaves is told to `on_removed`."""

    def __init__(self, capacity: int, on_removed: Callable[[int], object]) -> None:
        self.capacity = capacity
        self.on_removed = on_removed
        self.entries: OrderedDict[int, Any] = OrderedDict()

    def __len__(self) -> int:
        return len(self.entries)

    def __contains__(self, number: int) -> bool:
        return number in self.entries

    @property
    def order(self) -> Mapping[int, None]:
        return MappingProxyType(self.entries)

    def touch(self, number: int) -> None:
        if number in self.entries:
            self.entries.move_to_end(number)

    def put(self, number: int, value: Any) -> None:
        assert len(self.entries) < self.capacity
        self.entries[number] = value

    def pop(self, number: int) -> None:
        if number in self.entries:
            del self.entries[number]
            self.on_removed(number)

    def remove_oldest(self) -> None:
        self.pop(next(iter(self.entries)))

    def clear(self) -> None:
        while self.entries:
            self.remove_oldest()


class AdapterManager:
    """LRUCacheLoRAModelManager."""

    def __init__(self, slots: int, capacity: int) -> None:
        self.lora_slots = slots
        self.capacity = capacity
        self.lora_index_to_id: list[int | None] = [None] * slots
        self._registered_adapters = Cache(capacity, self.deactivate_adapter)
        self._active_adapters = Cache(slots, self._deactivate)

    def add_adapter(self, copy: Copy) -> bool:
        if copy.id in self._registered_adapters:
            self._registered_adapters.touch(copy.id)
            return False
        self._registered_adapters.put(copy.id, copy)
        return True

    def activate_adapter(self, number: int) -> bool:
        if number in self._active_adapters:
            self._active_adapters.touch(number)
            return False
        if len(self._active_adapters) >= self.lora_slots:
            self._active_adapters.remove_oldest()
        self._active_adapters.put(number, None)
        self._registered_adapters.touch(number)
        self.lora_index_to_id[self.lora_index_to_id.index(None)] = number
        return True

    def deactivate_adapter(self, number: int) -> bool:
        if number not in self._active_adapters:
            return False
        self._active_adapters.pop(number)
        return True

    def remove_adapter(self, number: int) -> bool:
        self.deactivate_adapter(number)
        held = number in self._registered_adapters
        self._registered_adapters.pop(number)
        return held

    def remove_oldest_adapter(self) -> bool:
        self._registered_adapters.remove_oldest()
        return True

    def remove_all_adapters(self) -> None:
        self._registered_adapters.clear()
        self._active_adapters.clear()

    def _deactivate(self, number: int) -> None:
        if number in self.lora_index_to_id:
            self.lora_index_to_id[self.lora_index_to_id.index(number)] = None


class WorkerManager:
    """LRUCacheWorkerLoRAManager. Loads of the paths in `broken` fail."""

    def __init__(self, slots: int = 2, capacity: int = 4) -> None:
        self._adapter_manager = AdapterManager(slots, capacity)
        self.broken: set[str] = set()

    def set_active_adapters(self, requests: list[Request]) -> None:
        """One step of a batch."""
        self._apply_adapters(requests)

    def _apply_adapters(self, requests: list[Request]) -> None:
        for request in requests:
            self.add_adapter(request)

    def _load_adapter(self, request: Request) -> Copy:
        if request.lora_path in self.broken:
            raise ValueError(f"nothing at {request.lora_path}")
        return Copy(request.lora_int_id)

    def add_adapter(self, request: Request) -> bool:
        adapters, number = self._adapter_manager, request.lora_int_id
        if number in adapters._registered_adapters and not request.load_inplace:
            adapters._registered_adapters.touch(number)
        else:
            copy = self._load_adapter(request)
            adapters.remove_adapter(number)
            if len(adapters._registered_adapters) >= adapters.capacity:
                adapters.remove_oldest_adapter()
            adapters.add_adapter(copy)
        adapters.activate_adapter(number)
        return True

    def pin_adapter(self, number: int) -> bool:
        raise NotImplementedError

    def remove_adapter(self, number: int) -> bool:
        return self._adapter_manager.remove_adapter(number)

    def remove_all_adapters(self) -> None:
        self._adapter_manager.remove_all_adapters()


@dataclass
class Worker:
    """A vLLM worker, less the extension; `running` are the adapters of its requests."""

    manager: WorkerManager = field(default_factory=WorkerManager)
    running: list[Request | None] = field(default_factory=list)
    rank: int = 0

    @property
    def parallel_config(self) -> Any:
        return SimpleNamespace(data_parallel_rank=0)

    @property
    def model_runner(self) -> Any:
        requests = {
            str(position): SimpleNamespace(lora_request=request)
            for position, request in enumerate(self.running)
        }
        return SimpleNamespace(lora_config=object(), lora_manager=self.manager, requests=requests)


def play(manager: Any, request: Callable[..., Any], *, seed: int, steps: int) -> list[Any]:
    """A story of loads, steps, removals and freed slots: what is held after each of them."""
    chance = random.Random(seed)
    adapters = manager._adapter_manager
    story: list[Any] = []
    for _ in range(steps):
        numbers = chance.sample(range(1, 7), 2)
        kind = chance.choice(["load", "step", "step", "step", "again", "remove", "free", "clear"])
        if kind == "load":
            manager.add_adapter(request(lora_name=f"n{numbers[0]}", lora_int_id=numbers[0]))
        elif kind == "step":
            manager._apply_adapters([request(lora_name=f"n{n}", lora_int_id=n) for n in numbers])
        elif kind == "again":
            manager.add_adapter(
                request(lora_name=f"n{numbers[0]}", lora_int_id=numbers[0], load_inplace=True)
            )
        elif kind == "remove":
            manager.remove_adapter(numbers[0])
        elif kind == "free":
            adapters.deactivate_adapter(numbers[0])
        elif chance.random() < 0.3:
            manager.remove_all_adapters()
        story.append(
            [
                kind,
                list(adapters.lora_index_to_id),
                list(adapters._active_adapters.order),
                list(adapters._registered_adapters.order),
            ]
        )
    return story
