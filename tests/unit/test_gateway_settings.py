"""Settings of a gateway: what is refused, and the name that it gives itself."""

from __future__ import annotations

import re
import socket
from typing import Any

import pytest

from axiom_common.errors import SettingsError
from axiom_common.runtime.settings import load_settings
from axiom_gateway.settings import GatewaySettings


def test_two_gateways_of_one_host_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "gpu-7.rack/2" + "x" * 200)
    names = {load_settings(GatewaySettings).gateway for _ in range(2)}
    assert len(names) == 2
    assert all(re.fullmatch(r"gpu-7-rack-2x+-[0-9a-f]{8}", name) for name in names)
    assert all(len(name) <= 64 for name in names)
    assert load_settings(GatewaySettings, gateway="mine").gateway == "mine"


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"default_profile": "fastest"}, "default_profile"),
        ({"gateway": "a.b"}, "gateway"),
        ({"hold_ms": 0}, "hold_ms"),
        ({"start_ms": -1}, "start_ms"),
        ({"requests_max": 0}, "requests_max"),
        ({"body_bytes_max": 10}, "body_bytes_max"),
    ],
)
def test_wrong_settings_are_one_line_that_names_the_field(
    wrong: dict[str, Any], named: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{named}: ") as refusal:
        load_settings(GatewaySettings, **wrong)
    assert "\n" not in str(refusal.value)
