"""`axiom bench index`: the prefix state index, compiled and in Python, and Dynamo's beside it.

Each is measured in a process of its own, in turns, several rounds; of each figure the least counts,
for other work on the same cores only ever adds. What is not built or installed is absent.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from axiom_cli.bench.rounds import WITHIN_S, in_turns, show
from axiom_cli.machine import commit, machine
from axiom_common.errors import UnavailableError
from axiom_common.runtime.native import is_native

MESSAGES_PER_S = 100_000
SECONDS_BESIDE = 2
AXIOM, TWIN, DYNAMO, CRATE, BESIDE = "axiom", "axiom_python", "dynamo", "dynamo_crate", "beside"
MIRROR = "mirror"
_STORED = {AXIOM: ("_32", "_512"), TWIN: ("_32", "_512"), DYNAMO: ("",), CRATE: ("",)}
"""Chunks a message; peers' are of 32."""
_OWN = {
    "lookup_512_us_half": "lookup_us_half",
    "lookup_512_us_miss": "lookup_us_miss",
    "lookup_512_us_1024_engines": "lookup_us_1024_engines",
    "store_ns_further_holder": "store_ns_further",
    "withdraw_ns": "withdraw_ns",
    "bytes_per_first_holder": "bytes_per_first_holder",
    "bytes_per_further_holder": "bytes_per_further_holder",
    "rss_after_all_left_share": "rss_after_all_left_share",
}
_MIRRORED = ("stored_us_block_16_prompts", "stored_us_block_16_answers")
"""Blocks of the size that vLLM has unless told otherwise; the dearer kind counts."""
_HERE = Path(__file__).parent
_NATIVE = _HERE.parents[1] / "axiom_native"


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexBenchOptions:
    """`chunks`: how many are stored. `peers_dir`: where `make bench-peers` put the others."""

    chunks: int
    rounds: int
    peers_dir: Path
    as_json: bool


def bench_index(options: IndexBenchOptions) -> None:
    """Measure and print. UnavailableError when one of them fails."""
    found = in_turns(lambda: _commands(options), options.rounds)
    show(figures_of(options, found.of_each, seconds=found.seconds), as_json=options.as_json)


def _commands(options: IndexBenchOptions) -> dict[str, list[str]]:
    """Of those that can be measured here."""
    chunks = str(options.chunks)
    work = [sys.executable, "-m", "axiom_cli.bench.index_work"]
    mirror = [sys.executable, "-m", "axiom_cli.bench.mirror_work"]
    commands = {TWIN: [*work, "python", chunks], MIRROR: mirror}
    if is_native():
        commands[AXIOM] = [*work, "native", chunks]
    dynamo = options.peers_dir / "dynamo" / "bin" / "python"
    if dynamo.is_file():
        commands[DYNAMO] = [str(dynamo), str(_HERE / "index_dynamo.py"), chunks]
    crate = options.peers_dir / "dynamo_crate" / "release" / "dynamo_crate"
    if crate.is_file():
        commands[CRATE] = [str(crate), chunks]
    if (beside := _beside_writer(options.peers_dir)) is not None:
        commands[BESIDE] = [str(beside), chunks, str(MESSAGES_PER_S), str(SECONDS_BESIDE)]
    return commands


def _beside_writer(peers_dir: Path) -> Path | None:
    """The program that reads and writes on two cores, built; None without cargo or its source."""
    if shutil.which("cargo") is None or not _NATIVE.joinpath("Cargo.toml").is_file():
        return None
    target = peers_dir.absolute() / "axiom_native"
    build = ["cargo", "build", "--quiet", "--locked", "--release", "--example", "beside_writer"]
    try:
        subprocess.run([*build, "--target-dir", target], cwd=_NATIVE, timeout=WITHIN_S, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise UnavailableError(f"beside_writer was not built: {error}") from error
    return target / "release" / "examples" / "beside_writer"


def figures_of(
    options: IndexBenchOptions, of_each: dict[str, dict[str, Any]], *, seconds: float
) -> dict[str, Any]:
    """What is printed with --json. Without the compiled index the twin's figures stand alone."""
    own, mirror = of_each.get(AXIOM, of_each[TWIN]), of_each[MIRROR]
    figures: dict[str, Any] = {
        "chunks": options.chunks,
        "lookup_512_us": {
            name: of_each[name]["lookup_us"]
            for name in (AXIOM, TWIN, DYNAMO, CRATE)
            if name in of_each
        },
        "lookup_512_of_peer": {
            name: own["lookup_us"] / of_each[name]["lookup_us"]
            for name in (DYNAMO, CRATE)
            if name in of_each
        },
        "store_ns": {
            f"{name}{size}": of_each[name][f"store_ns{size}"]
            for name, sizes in _STORED.items()
            if name in of_each
            for size in sizes
        },
        **{key: own[of] for key, of in _OWN.items()},
        # The mirror has no compiled twin.
        "agent_us_per_block": {"python": max(mirror[key] for key in _MIRRORED), "native": None},
        "seconds": seconds,
        "repeats": options.rounds,
        "machine": machine(),
        "commit": commit(),
    }
    if BESIDE in of_each:
        beside = of_each[BESIDE]
        figures["lookup_us_under_writes"] = {key: beside[key] for key in ("quiet", "writing")}
        figures["messages_per_s"] = beside["messages_per_s"]
        quiet, writing = beside["quiet"]["p50"], beside["writing"]["p50"]
        figures["lookup_under_writes_of_quiet"] = writing / quiet
    return figures
