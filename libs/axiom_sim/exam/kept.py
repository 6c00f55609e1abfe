"""Outcomes kept in a file, so that an exam that was cut short goes on where it was.

One line a task. The file is of one state of the code: with another one it begins anew.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

import msgspec

import axiom_common
import axiom_gateway
import axiom_sim
from axiom_common.errors import InvalidInputError
from axiom_common.runtime.native import which_runs
from axiom_sim.exam.outcome import Outcome
from axiom_sim.exam.tasks import ExamTask

_CODE = (axiom_common, axiom_gateway, axiom_sim)
_FILE = "outcomes.jsonl"


class _Line(msgspec.Struct, frozen=True):
    task: str
    outcome: Outcome


class _Head(msgspec.Struct, frozen=True):
    code: str


class Kept:
    """The outcomes in a folder, by task."""

    def __init__(self, folder: Path) -> None:
        """Read what the same code left there; InvalidInputError where files can't be written."""
        self._path = folder / _FILE
        head = _Head(code_digest())
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._outcomes = _read(self._path, head)
            lines = [_Line(task, outcome) for task, outcome in self._outcomes.items()]
            self._path.write_bytes(b"".join(_encoded(line) for line in (head, *lines)))
        except OSError as error:
            raise InvalidInputError(f"can't keep outcomes: {error}", path="dir") from error

    def get(self, task: ExamTask) -> Outcome | None:
        """What was kept of it."""
        return self._outcomes.get(_key(task))

    def add(self, task: ExamTask, outcome: Outcome) -> None:
        """Keep it."""
        with self._path.open("ab") as file:
            file.write(_encoded(_Line(_key(task), outcome)))


def code_digest() -> str:
    """Changes with the code that outcomes come from, and with what runs compiled."""
    digest = hashlib.sha256(which_runs().encode())
    for package in _CODE:
        for path in sorted(_folder(package).rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _encoded(line: msgspec.Struct) -> bytes:
    return msgspec.json.encode(line) + b"\n"


def _folder(package: ModuleType) -> Path:
    return Path(package.__path__[0])


def _key(task: ExamTask) -> str:
    """The variant as it was read is part of it: a file may have changed."""
    scenario = hashlib.sha256(repr(task.scenario).encode()).hexdigest()[:16]
    return f"{task.group}/{task.run}/{scenario}"


def _read(path: Path, head: _Head) -> dict[str, Outcome]:
    """Nothing where the file is not there or of other code; of a line that was cut, nothing."""
    if not path.is_file():
        return {}
    first, *lines = path.read_bytes().split(b"\n")
    outcomes: dict[str, Outcome] = {}
    try:
        if msgspec.json.decode(first, type=_Head) != head:
            return {}
        for line in lines:
            kept = msgspec.json.decode(line, type=_Line)
            outcomes[kept.task] = kept.outcome
    except msgspec.DecodeError:
        pass
    return outcomes
