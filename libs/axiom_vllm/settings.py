"""What the operator says: two environment variables of the vLLM server."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

SOCKET_VARIABLE = "AXIOM_AGENT_SOCKET"
"""Path of the node agent's Unix socket for this engine; without it the extension stays off."""
TOKEN_VARIABLE = "AXIOM_AGENT_TOKEN"
"""When set, callers of /axiom/v1 say `Authorization: Bearer <token>`."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`socket_path` "" means off; `token` "" means that callers need none."""

    socket_path: str = ""
    token: str = ""

    @staticmethod
    def read(environment: Mapping[str, str] = os.environ) -> Settings:
        """From the process's environment. vLLM makes our classes itself, so nobody could hand
        settings in."""
        return Settings(
            socket_path=environment.get(SOCKET_VARIABLE, ""),
            token=environment.get(TOKEN_VARIABLE, ""),
        )
