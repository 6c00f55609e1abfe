"""Keys as they are pressed, from a terminal that is as it was afterwards."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
import tty
from collections.abc import Callable, Iterator
from contextlib import contextmanager

READ_MAX = 64


@contextmanager
def keystrokes(on_key: Callable[[str], None]) -> Iterator[None]:
    """Hear each key while the block runs, not echoed and without Enter; Ctrl-C stays a signal.
    Nothing is heard where the standard input is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    terminal = sys.stdin.fileno()
    loop = asyncio.get_running_loop()

    def read() -> None:
        pressed = os.read(terminal, READ_MAX)
        if not pressed:
            loop.remove_reader(terminal)
        for key in pressed.decode(errors="replace"):
            on_key(key)

    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    try:
        loop.add_reader(terminal, read)
        yield
    finally:
        loop.remove_reader(terminal)
        termios.tcsetattr(terminal, termios.TCSANOW, before)
