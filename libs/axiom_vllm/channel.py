"""Messages to the node agent: numbered datagrams that never wait.

Sending is one system call that returns at once. When the agent is away or its queue is full the
message is dropped: its number is missing at the agent, and `owed` asks the sender to make its next
message a whole one. A message that met a full queue is tried again from a timer thread for a while,
because an engine that falls idle has no next message.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable

from axiom_vllm.messages import FORM, Message, encoded

RETRY_S = 0.02
RETRIES_MAX = 100
_FULL = {errno.EAGAIN, errno.EWOULDBLOCK, errno.ENOBUFS}

Transmit = Callable[[bytes], None]
"""Hands over one datagram without waiting; OSError when that is not possible."""


class UnixDatagrams:
    """To whoever listens at `path` at the moment of sending: an agent may come and go."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def __call__(self, datagram: bytes) -> None:
        """A Transmit."""
        self._socket.sendto(datagram, self._path)

    def close(self) -> None:
        """Let go of the socket."""
        self._socket.close()


def new_instance() -> str:
    """A name that no other process and no earlier life of this one has."""
    return f"{os.getpid()}-{secrets.token_hex(4)}"


class Channel:
    """One sender's numbered messages. `seq` is the number of the newest, sent or dropped."""

    def __init__(self, transmit: Transmit) -> None:
        self.instance = new_instance()
        self.seq = 0
        self.owed = True
        self._transmit = transmit
        self._lock = threading.Lock()

    def stamped(self, message: Message) -> Message:
        """`message` with the sender's name, its newest number and the time."""
        at_ms = round(time.time() * 1e3, 1)
        head = {"v": FORM, "instance": self.instance, "seq": self.seq, "at_ms": at_ms}
        return {**head, **message}

    def send(self, message: Message) -> None:
        """Number it and send it, or drop it."""
        with self._lock:
            self.seq += 1
            datagram = encoded(self.stamped(message))
            problem = self._try(datagram)
            if problem in _FULL:
                self._retry_later(datagram, self.seq, RETRIES_MAX)

    def _try(self, datagram: bytes) -> int:
        """0, or the error's number."""
        try:
            self._transmit(datagram)
        except OSError as error:
            self.owed = True
            return error.errno or errno.EIO
        self.owed = False
        return 0

    def _retry_later(self, datagram: bytes, seq: int, retries: int) -> None:
        timer = threading.Timer(RETRY_S, self._retry, (datagram, seq, retries))
        timer.daemon = True
        timer.start()

    def _retry(self, datagram: bytes, seq: int, retries: int) -> None:
        with self._lock:
            # A newer message says all that this one says.
            if seq != self.seq or not self.owed:
                return
            if self._try(datagram) in _FULL and retries > 1:
                self._retry_later(datagram, seq, retries - 1)
