"""A command in a real pseudo-terminal, and what a person would see on its screen."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import struct
import subprocess
import termios
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pyte
from tests.eventually import eventually

ENTER_SCREEN, LEAVE_SCREEN, SHOW_CURSOR = b"\x1b[?1049h", b"\x1b[?1049l", b"\x1b[?25h"
CTRL_C = "\x03"


class Terminal:
    """The command's process, its screen, and the keyboard."""

    def __init__(self, argv: Sequence[str], *, columns: int, lines: int) -> None:
        self._master, self._slave = pty.openpty()
        self._screen = pyte.Screen(columns, lines)
        self._stream = pyte.ByteStream(self._screen)
        self.output = b""
        self.resize(columns, lines)
        self.before = self.settings
        environment = {**os.environ, "TERM": "xterm-256color"}
        for name in ("COLUMNS", "LINES", "NO_COLOR"):
            environment.pop(name, None)
        self.process = subprocess.Popen(
            argv,
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
            env=environment,
            start_new_session=True,
            # So that Ctrl-C and a change of the size reach it as signals.
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        asyncio.get_running_loop().add_reader(self._master, self._read)

    def _read(self) -> None:
        part = os.read(self._master, 65536)
        self.output += part
        self._stream.feed(part)

    @property
    def settings(self) -> list[Any]:
        """As `stty` tells them."""
        return list(termios.tcgetattr(self._slave))

    @property
    def echoes(self) -> bool:
        """Whether what is typed is shown."""
        return bool(self.settings[3] & termios.ECHO)

    @property
    def shown(self) -> list[str]:
        """The lines of the screen, without blanks at their ends."""
        return [line.rstrip() for line in self._screen.display]

    def shows(self, *words: str) -> bool:
        """Whether all of them are on the screen."""
        text = "\n".join(self.shown)
        return all(word in text for word in words)

    def press(self, key: str) -> None:
        """Press a key."""
        os.write(self._master, key.encode())

    def resize(self, columns: int, lines: int) -> None:
        """Pull the window to another size."""
        self._screen.resize(lines, columns)
        size = struct.pack("HHHH", lines, columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    async def ended(self) -> int:
        """Wait for the end; the exit code."""
        await eventually(lambda: self.process.poll() is not None, within_s=20)
        assert self.process.returncode is not None
        return self.process.returncode

    def close(self) -> None:
        """End the process if it still runs."""
        asyncio.get_running_loop().remove_reader(self._master)
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@asynccontextmanager
async def terminal(*argv: str, columns: int = 100, lines: int = 30) -> AsyncIterator[Terminal]:
    """A command in a terminal of that size."""
    running = Terminal(argv, columns=columns, lines=lines)
    try:
        yield running
    except AssertionError as error:
        raise AssertionError("\n".join([str(error), *running.shown])) from error
    finally:
        running.close()
