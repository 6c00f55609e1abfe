"""Logs: one JSON object a line on standard error, no prompt text, repeated lines rate limited."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from pathlib import Path
from typing import Any

from axiom_common.ports.clock import Clock

_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_REPEAT_MS = 60_000.0
_KEYS_MAX = 1024
_FRAMES_MAX = 16


class _JsonFormatter(logging.Formatter):
    """`{"ts", "level", "service", "event", ...fields}`."""

    def __init__(self, service: str) -> None:
        super().__init__()
        self._service = service

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "ts": self.formatTime(record, "%Y-%m-%dT%H:%M:%S"),
            "level": record.levelname.lower(),
            "service": self._service,
            "logger": record.name,
            "event": record.getMessage(),
        }
        line |= getattr(record, "fields", {})
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def set_up_logging(service: str, level: str) -> None:
    """Send all logs of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JsonFormatter(service))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(_LEVELS[level])
    for noisy in ("nats", "aiohttp.access", "uvicorn.access"):
        logging.getLogger(noisy).setLevel(logging.ERROR)


class Log:
    """A logger whose lines are an event and fields, e.g. `log.warning("load failed", adapter=a)`.

    `once_a_minute` names a key: further lines with it are counted and left out for a minute.
    """

    def __init__(self, name: str, clock: Clock) -> None:
        self._logger = logging.getLogger(name)
        self._clock = clock
        self._last_ms: dict[str, float] = {}
        self._left_out: dict[str, int] = {}

    def info(self, event: str, *, once_a_minute: str | None = None, **fields: object) -> None:
        """Something worth knowing happened."""
        self._write(logging.INFO, event, once_a_minute, fields)

    def warning(self, event: str, *, once_a_minute: str | None = None, **fields: object) -> None:
        """Something is degraded; Axiom goes on."""
        self._write(logging.WARNING, event, once_a_minute, fields)

    def error(self, event: str, **fields: object) -> None:
        """Something is broken and a person should look."""
        self._write(logging.ERROR, event, None, fields)

    def defect(self, event: str, error: Exception, **fields: object) -> None:
        """As `error`, with the type of `error` and the way it took, the last call last.

        Not its words: they may quote what a client sent.
        """
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES_MAX:]
        fields["error"] = type(error).__name__
        fields["way"] = [f"{Path(at.filename).name}:{at.lineno} {at.name}" for at in frames]
        self._write(logging.ERROR, event, None, fields)

    def _write(
        self,
        level: int,
        event: str,
        key: str | None,
        fields: dict[str, object],
    ) -> None:
        if key is not None:
            now = self._clock.now_ms()
            if now - self._last_ms.get(key, -_REPEAT_MS) < _REPEAT_MS:
                self._left_out[key] = self._left_out.get(key, 0) + 1
                return
            if len(self._last_ms) >= _KEYS_MAX:
                self._last_ms.clear()
            self._last_ms[key] = now
            if left_out := self._left_out.pop(key, 0):
                fields["left_out"] = left_out
        self._logger.log(level, event, extra={"fields": fields})
