"""The command's standard streams: full, closed, read no further; and a file that comes on one."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys

import pytest
from aiohttp import web
from tests.answering import server
from typer.testing import CliRunner

from axiom_cli.__main__ import app
from axiom_common.wire import headers

AXIOM = (sys.executable, "-m", "axiom_cli")
NO_GATEWAY = ("--url", "http://127.0.0.1:9")


def ended(redirected: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command of the shell's."""
    command = ["sh", "-c", f'"$@" {redirected}', "sh", *AXIOM, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.parametrize("arguments", [("version",), ("status", *NO_GATEWAY, "--json")])
def test_output_that_can_not_be_written_is_one_line_and_exit_1(arguments: tuple[str, ...]) -> None:
    told = ended(">/dev/full", *arguments)
    assert (told.returncode, told.stderr) == (
        1,
        "error: standard output: No space left on device\n",
    )


def test_a_closed_output_is_a_wrong_command_line() -> None:
    told = ended(">&-", "status", *NO_GATEWAY)
    assert (told.returncode, told.stderr) == (2, "error: standard output is closed\n")


def test_other_streams_may_be_closed() -> None:
    told = ended("<&- 2>&-", "status", *NO_GATEWAY, "--json")
    assert (told.returncode, told.stderr) == (1, "")
    assert '"unavailable"' in told.stdout


def test_a_reader_that_is_gone_is_no_error_to_tell() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    told = subprocess.run(
        [*AXIOM, "version"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (told.returncode, told.stderr) == (1, "")


async def test_a_file_may_come_on_standard_input() -> None:
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        told = {headers.OUTCOME: "created", "etag": '"1"'}
        return web.json_response({"name": "m", "version": 1}, status=201, headers=told)

    async with server(answer) as url:
        process = await asyncio.create_subprocess_exec(
            *AXIOM, "adapters", "apply", "-", "--url", url,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        out, _ = await asyncio.wait_for(process.communicate(b"base_models: [{name: m}]"), 60)
    assert (process.returncode, out) == (0, b"1 created\n")
    assert asked == ["/admin/v1/models/m"]


@pytest.mark.parametrize(
    ("text", "code", "out"),
    [("adapters: []", 0, "declares nothing\n"), ("", 1, ""), ("adapters: [", 1, "")],
)
def test_a_file_says_that_it_declares_nothing(text: str, code: int, out: str) -> None:
    told = CliRunner().invoke(app, ["adapters", "apply", "-", *NO_GATEWAY], input=text)
    assert (told.exit_code, told.stdout) == (code, out)
    assert told.stderr.startswith("error: -: ") is (code == 1)
