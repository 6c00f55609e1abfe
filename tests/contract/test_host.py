"""One suite for the `Host` port: the fake and the real one; then what only the real one shows."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.eventually import eventually
from tests.owner import task_owner

from axiom_common.drivers import adapter_files
from axiom_common.drivers.host_facts import READ_AHEADS_MAX, STALE_MS, HostFacts
from axiom_common.ports.host import Host
from axiom_common.testing.clock import FakeClock
from axiom_common.testing.host import FakeHost

SIZE = 1 << 20


@pytest.fixture
def adapter(tmp_path: Path) -> str:
    """A directory with one large file that nobody has read yet."""
    folder = tmp_path / "adapter"
    folder.mkdir()
    with (folder / "weights").open("wb") as file:
        file.truncate(SIZE)
    return str(folder)


@pytest.fixture(params=["fake", "real"])
def host(request: pytest.FixtureRequest, adapter: str) -> Host:
    if request.param == "fake":
        return FakeHost({adapter: SIZE})
    return HostFacts(FakeClock())


@asynccontextmanager
async def running(host: Host, *paths: str) -> AsyncIterator[None]:
    async with task_owner() as owner:
        task = owner.create_task(host.run(lambda: iter(paths)), name="host")
        await eventually(lambda: host.read() is not None)
        yield
        task.cancel()


async def test_nothing_is_known_before_it_runs(host: Host) -> None:
    assert host.read() is None


async def test_an_adapter_that_was_read_ahead_is_cached(host: Host, adapter: str) -> None:
    assert await host.read_ahead(adapter, 2 * SIZE) == SIZE
    async with running(host, adapter, adapter):
        state = host.read()
        assert state is not None
        assert state.adapter_cache_bytes == SIZE
        assert state.memory_total_bytes


async def test_one_that_was_not_is_not(host: Host, adapter: str) -> None:
    async with running(host, adapter, "/nowhere"):
        state = host.read()
        assert state is not None
        assert state.adapter_cache_bytes == 0


async def test_no_more_is_read_ahead_than_was_asked_for(host: Host, adapter: str) -> None:
    assert await host.read_ahead(adapter, SIZE // 2) == SIZE // 2
    assert await host.read_ahead(adapter + "-not", SIZE) is None


@pytest.fixture(params=["cachestat", "mincore"])
def _counts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "mincore":
        monkeypatch.setattr(adapter_files, "_CACHESTAT", -1)  # As on an older kernel.


@pytest.mark.usefixtures("_counts")
def test_part_of_a_file_is_cached(tmp_path: Path, adapter: str) -> None:
    assert adapter_files.cached_bytes([adapter]) == 0
    assert adapter_files.read_ahead(adapter, 2 * SIZE, lambda: True) == SIZE
    assert adapter_files.cached_bytes([adapter]) == SIZE
    odd = tmp_path / "odd"
    odd.write_bytes(b"x" * 5000)
    (tmp_path / "link").symlink_to(odd)
    (tmp_path / "empty").touch()
    paths = [str(odd), str(tmp_path / "link"), str(tmp_path / "empty"), "org/name", "/no\0where"]
    assert adapter_files.cached_bytes(paths) == 5000


def test_more_files_than_are_looked_at_are_unknown(
    adapter: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(adapter_files, "FILES_MAX", 1)
    (tmp_path / "other").write_bytes(b"x")
    assert adapter_files.cached_bytes([adapter]) == 0
    assert adapter_files.cached_bytes([adapter, str(tmp_path / "other")]) is None


async def test_the_real_host_tells_all_fields(adapter: str) -> None:
    host = HostFacts(FakeClock(), adapter_dirs=[str(Path(adapter).parent)])
    async with running(host):
        state = host.read()
    assert state is not None
    disk = os.statvfs(adapter)
    assert state.adapter_disk_total_bytes == disk.f_blocks * disk.f_frsize
    assert state.memory_total_bytes == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGESIZE")
    assert 0 < (state.memory_available_bytes or 0) <= state.memory_total_bytes
    assert 0 < (state.page_cache_bytes or 0) <= state.memory_total_bytes
    assert 0 < (state.adapter_disk_free_bytes or 0) <= state.adapter_disk_total_bytes
    assert state.adapter_cache_bytes == 0


async def test_what_the_system_does_not_say_is_unknown(tmp_path: Path) -> None:
    host = HostFacts(FakeClock(), adapter_dirs=["/nowhere", "no-path"], meminfo=tmp_path / "none")
    async with running(host):
        state = host.read()
    assert state is not None
    assert state.memory_total_bytes is None
    assert state.page_cache_bytes is None
    assert (state.adapter_disk_total_bytes, state.adapter_disk_free_bytes) == (None, None)


async def test_what_was_read_long_ago_is_unknown() -> None:
    clock = FakeClock()
    host = HostFacts(clock)
    async with running(host):
        await clock.advance(STALE_MS)
        assert host.read() is None


async def test_reading_ahead_that_hangs_refuses_what_it_can_not_hold(
    adapter: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host, free, real = HostFacts(FakeClock()), threading.Event(), adapter_files.files_of

    def hangs(path: str) -> Iterator[adapter_files.AdapterFile]:
        free.wait()
        return real(path)

    monkeypatch.setattr(adapter_files, "files_of", hangs)
    async with task_owner() as owner:
        try:
            first = owner.create_task(host.read_ahead(adapter, SIZE), name="ask first")
            await eventually(lambda: host._reader is not None and host._asked.empty())
            others = [
                owner.create_task(host.read_ahead(adapter, SIZE), name=f"ask {n}")
                for n in range(READ_AHEADS_MAX)
            ]
            await eventually(host._asked.full)
            assert await host.read_ahead(adapter, SIZE) is None
            others[0].cancel()
        finally:
            free.set()
        assert await first == SIZE
        results = await asyncio.gather(*others, return_exceptions=True)
    assert isinstance(results.pop(0), asyncio.CancelledError)
    assert results == [SIZE] * (READ_AHEADS_MAX - 1)
