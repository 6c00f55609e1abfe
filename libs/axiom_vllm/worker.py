"""The half in the worker: `--worker-extension-cls axiom_vllm.worker.WorkerExtension`.

vLLM mixes the class into its worker, so `self` is one; its names begin with `axiom_` to meet none
of the worker's. Nothing happens before the middleware calls `axiom_attach` through collective_rpc,
and all calls run in the engine's loop, between steps.
"""

from __future__ import annotations

import time
from typing import Any

from axiom_vllm.channel import Channel, UnixDatagrams
from axiom_vllm.control import AdapterControl
from axiom_vllm.known import installed_version, lora_request, worker_problem
from axiom_vllm.messages import (
    FAILED,
    NOT_ENABLED,
    UNSUPPORTED,
    Message,
    refused,
    unsupported,
)
from axiom_vllm.settings import Settings
from axiom_vllm.watch import AdapterWatch

OWED_S = 0.25
"""An agent that is back hears the whole this soon from an engine that works."""


class _Attached:
    """One worker with the extension at work."""

    def __init__(self, worker: Any, names: dict[int, str], socket_path: str) -> None:
        runner = worker.model_runner
        # All workers of an engine hold the same adapters; the first one speaks.
        self.channel = Channel(UnixDatagrams(socket_path)) if worker.rank == 0 else None
        self.rank = int(getattr(worker.parallel_config, "data_parallel_rank", 0))
        self.failure: Message | None = None
        self._tried_s = 0.0
        self.watch = AdapterWatch(runner.lora_manager, names, self._tell, self._due)
        self.control = AdapterControl(self.watch, runner, lora_request)
        self.watch.attach(self._failed)

    def state(self) -> Message:
        """The whole, told to the agent as well: with data parallel engines the caller hears one."""
        if self.failure is not None:
            return self.failure
        message = {"rank": self.rank, **self.watch.whole()}
        if self.channel is None:
            return message
        self.channel.send(message)
        return self.channel.stamped(message)

    def _tell(self, message: Message) -> None:
        if self.channel is not None:
            self._tried_s = time.perf_counter()
            owed = self.channel.owed
            whole = {**self.watch.whole(), "events": message["events"]} if owed else message
            self.channel.send({"rank": self.rank, **whole})

    def _due(self) -> bool:
        """Whether a lost message should be made good now. Not at each step: the agent may be away
        for long."""
        if self.channel is None or not self.channel.owed:
            return False
        return time.perf_counter() - self._tried_s >= OWED_S

    def _failed(self, error: Exception) -> None:
        self.failure = unsupported(FAILED, repr(error))
        if self.channel is not None:
            self.channel.send({"kind": UNSUPPORTED, "rank": self.rank, **self.failure})


class WorkerExtension:
    """What collective_rpc can call. Every answer is a message, never an exception."""

    model_runner: Any
    rank: int
    parallel_config: Any
    axiom_attached: _Attached

    def axiom_attach(self, names: dict[str, str]) -> Message:
        """Begin, once; again it only answers. `names` (number -> name) are those of adapters that
        were loaded before. The answer is the state, or why the extension stays off."""
        attached: _Attached | None = getattr(self, "axiom_attached", None)
        if attached is not None:
            return attached.state()
        settings = Settings.read()
        if not settings.socket_path:
            return unsupported(NOT_ENABLED)
        problem = worker_problem(self, installed_version())
        if problem is not None:
            return unsupported(*problem)
        known = {int(number): name for number, name in names.items()}
        self.axiom_attached = _Attached(self, known, settings.socket_path)
        return self.axiom_attached.state()

    def axiom_control(self, call: str, arguments: list[Any]) -> Message:
        """One of AdapterControl's methods."""
        attached = getattr(self, "axiom_attached", None)
        if attached is None or attached.failure is not None:
            return refused(FAILED, "the extension is off in the worker")
        outcome: Message = getattr(attached.control, call)(*arguments)
        return outcome
