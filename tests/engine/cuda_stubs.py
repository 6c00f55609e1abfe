"""Stand-ins for the CUDA libraries that PyPI's torch asks for, on a machine without a GPU.

usage: cuda_stubs.py SITE_PACKAGES

torch's CUDA build refuses to be imported unless its CUDA libraries load and define what it refers
to. Each library that is needed and not there becomes a small one, beside torch's own where its
RPATH looks, in which every function says "no device": torch then finds no GPU and never calls
another. Refuses where a driver is installed: such a machine runs the engine's GPU build.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

CUDA_LIBRARY = re.compile(r"lib(cu|nv|nccl)\w*\.so\.\d+$")
CUDA_FUNCTION = re.compile(r"(cu|nv|nccl)[A-Za-z]\w*$")
RETURNS_TEXT = re.compile(r"(String|ErrorName|GetLastError)$")
LOADED_ON_DEMAND = {"libcuda.so.1"}
"""The driver's own library: torch opens it only once it has found a device."""
NO_DEVICE = 100
"""cudaErrorNoDevice."""


def output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Wanted:
    """What torch's libraries refer to: CUDA libraries, their symbol versions, and functions."""

    def __init__(self, folder: Path) -> None:
        self.libraries: set[str] = set()
        self.version_of: dict[str, str] = {}
        self.versioned: dict[str, set[str]] = {}
        self.unversioned: set[str] = set()
        own: set[str] = set()
        for library in sorted(folder.glob("lib*.so")):
            if not library.name.startswith(("libtorch", "libc10", "libcaffe2")):
                continue
            self._read_needs(
                output("readelf", "--dynamic", "--version-info", "--wide", str(library))
            )
            self._read_symbols(output("nm", "--dynamic", "--undefined-only", str(library)))
            own |= {
                line.split()[-1].partition("@")[0]
                for line in output("nm", "--dynamic", "--defined-only", str(library)).splitlines()
            }
        self.unversioned -= own
        self.libraries -= LOADED_ON_DEMAND

    def _read_needs(self, text: str) -> None:
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", text)
        self.libraries |= {name for name in needed if CUDA_LIBRARY.match(name)}
        library = ""
        for line in text.splitlines():
            if found := re.search(r"File: (\S+)", line):
                library = found[1]
            elif (found := re.search(r"Name: (\S+)", line)) and CUDA_LIBRARY.match(library):
                self.version_of[library] = found[1]

    def _read_symbols(self, text: str) -> None:
        for line in text.splitlines():
            name, _, version = line.split()[-1].partition("@")
            if version:
                self.versioned.setdefault(version.lstrip("@"), set()).add(name)
            elif CUDA_FUNCTION.match(name):
                self.unversioned.add(name)

    def functions(self, library: str) -> list[str]:
        """What a stand-in for `library` defines. A reference without a version says not whose it
        is, so each stand-in offers all of those."""
        return sorted(
            self.versioned.get(self.version_of.get(library, ""), set()) | self.unversioned
        )


def build(library: str, functions: list[str], version: str, target: Path) -> None:
    lines = [
        f"static int no_device(void) {{ return {NO_DEVICE}; }}",
        'static const char *no_text(void) { return "no CUDA here"; }',
    ]
    for name in functions:
        kind, body = (
            ("const char *", "no_text") if RETURNS_TEXT.search(name) else ("int ", "no_device")
        )
        lines.append(f'{kind}{name}(void) __attribute__((alias("{body}")));')
    with tempfile.TemporaryDirectory() as folder:
        source, versions = Path(folder, "stub.c"), Path(folder, "stub.map")
        source.write_text("\n".join(lines) + "\n")
        versions.write_text(f"{version} {{ global: *; }};\n")
        link = f"-Wl,-soname,{library},--version-script={versions}"
        flags = ("-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w")
        output("cc", *flags, link, "-o", str(target), str(source))


def main() -> None:
    if Path("/proc/driver/nvidia").exists():
        sys.exit("cuda_stubs: a GPU driver is installed here; this environment is for CPUs only")
    site = Path(sys.argv[1])
    folder = site / "torch" / "lib"
    wanted = Wanted(folder)
    there = {path.name for path in folder.iterdir()}
    there |= {path.name for path in site.glob("nvidia/**/*.so*")}
    for library in sorted(wanted.libraries - there):
        version = wanted.version_of.get(library, "STUB")
        build(library, wanted.functions(library), version, folder / library)


if __name__ == "__main__":
    main()
