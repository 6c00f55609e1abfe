"""The command line of a service: `--config FILE` and a flag for each setting that is often set.

What is wrong in the settings, be it a value or what only a driver can tell of it (a cluster's URL),
is one line on stderr and exit code 2.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from axiom_common.errors import SettingsError
from axiom_common.runtime.lifecycle import run_process
from axiom_common.runtime.logging import set_up_logging
from axiom_common.runtime.settings import ServiceSettings, SettingsSource, exit_on_bad_settings

COMMON_FLAGS = {
    "region": "region that it serves",
    "nats_url": "NATS servers, separated by commas",
    "redis_url": "redis://host:port or redis+cluster://host:port,...",
    "host": "address to listen on",
    "port": "port to listen on; 0 takes a free one",
    "log_level": "debug, info, warning or error",
}
"""Help by setting, of the settings that every service has."""

S = TypeVar("S", bound=ServiceSettings)


def run_service(
    service: str,
    kind: type[S],
    serve: Callable[[S, asyncio.TaskGroup, asyncio.Event], Awaitable[None]],
    *,
    about: str,
    flags: Mapping[str, str],
) -> None:
    """The whole of a service's `main`: read its settings, then run `serve` until a signal.

    `flags` are the service's own: help by setting, like `COMMON_FLAGS`.
    """
    run_reloading_service(
        service,
        kind,
        lambda source, group, stop: serve(source.settings, group, stop),
        about=about,
        flags=flags,
    )


def run_reloading_service(
    service: str,
    kind: type[S],
    serve: Callable[[SettingsSource[S], asyncio.TaskGroup, asyncio.Event], Awaitable[None]],
    *,
    about: str,
    flags: Mapping[str, str],
) -> None:
    """As `run_service`, for one that can follow its settings file while it runs."""
    parser = argparse.ArgumentParser(prog=f"axiom-{service}", description=about)
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file of settings")
    for setting, text in (COMMON_FLAGS | dict(flags)).items():
        # The settings parse and check the text, as they do with the environment's.
        parser.add_argument(f"--{setting.replace('_', '-')}", help=text)
    given = vars(parser.parse_args())
    try:
        source = SettingsSource(kind, config=given.pop("config"), flags=given)
    except SettingsError as error:
        exit_on_bad_settings(error)
    set_up_logging(service, source.settings.log_level)
    run_process(lambda group, stop: serve(source, group, stop))
