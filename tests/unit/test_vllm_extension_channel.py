"""The extension's numbered datagrams: never a wait, a gap where one was dropped."""

from __future__ import annotations

import errno
import json
import threading

import pytest

from axiom_vllm import channel
from axiom_vllm.channel import Channel


class Line:
    """Takes datagrams, or fails with `problem`."""

    def __init__(self) -> None:
        self.problem = 0
        self.taken: list[dict[str, object]] = []
        self.arrived = threading.Event()

    def __call__(self, datagram: bytes) -> None:
        if self.problem:
            raise OSError(self.problem, "no")
        self.taken.append(json.loads(datagram))
        self.arrived.set()


def test_messages_are_numbered_and_signed() -> None:
    line = Line()
    sender = Channel(line)
    assert sender.owed
    sender.send({"kind": "x"})
    sender.send({"kind": "y"})
    assert [message["seq"] for message in line.taken] == [1, 2]
    assert {message["instance"] for message in line.taken} == {sender.instance}
    assert not sender.owed
    assert Channel(line).instance != sender.instance


@pytest.mark.parametrize("problem", [errno.ENOENT, errno.ECONNREFUSED, errno.EMSGSIZE])
def test_without_an_agent_the_message_is_dropped_and_the_next_one_owed(problem: int) -> None:
    line = Line()
    sender = Channel(line)
    line.problem = problem
    sender.send({"kind": "lost"})
    assert sender.owed
    line.problem = 0
    sender.send({"kind": "next"})
    assert [(m["kind"], m["seq"]) for m in line.taken] == [("next", 2)]


def test_what_met_a_full_queue_comes_later_if_nothing_newer_did() -> None:
    line = Line()
    sender = Channel(line)
    line.problem = errno.EAGAIN
    sender.send({"kind": "older"})
    sender.send({"kind": "newer"})
    line.problem = 0
    assert line.arrived.wait(5)
    assert [(m["kind"], m["seq"]) for m in line.taken] == [("newer", 2)]
    assert not sender.owed


def test_retries_end(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = []
    done = threading.Event()

    def full(datagram: bytes) -> None:
        tries.append(datagram)
        if len(tries) == 4:
            done.set()
        raise BlockingIOError(errno.EAGAIN, "full")

    monkeypatch.setattr(channel, "RETRIES_MAX", 3)
    monkeypatch.setattr(channel, "RETRY_S", 0.001)
    sender = Channel(full)
    sender.send({"kind": "x"})
    assert done.wait(5)
    assert sender.owed
    assert len(tries) == 4
