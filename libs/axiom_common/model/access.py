"""Who may do what: roles, and the keys that grant them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from axiom_common.errors import InvalidInputError
from axiom_common.model.ids import public_name
from axiom_common.model.tenant import DEFAULT_TENANT

_DIGEST = re.compile(r"[0-9a-f]{64}")
CREATED_MAX = 1 << 53


class Role(StrEnum):
    """What a key grants, least first; each role may do what those before it may.

    `client`: send requests to /v1. `viewer`: look at everything but keys. `operator`: declare
    models and adapters, take engines out and in. `admin`: also profiles and keys.
    """

    CLIENT = "client"
    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def grants(self, needed: Role) -> bool:
        """Whether who has this role may do what needs `needed`."""
        return _RANK[self] >= _RANK[needed]


_RANK = {role: rank for rank, role in enumerate(Role)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key, known by its name. `digest` is the SHA-256 of its secret in hex: the secret itself,
    256 bits of chance, is nowhere at rest. `created_ms` is a time since 1970. `tenant` names whose
    requests those with this key are."""

    name: str
    role: Role
    digest: str
    created_ms: int = 0
    tenant: str = DEFAULT_TENANT.name

    def __post_init__(self) -> None:
        public_name(self.name, path="name")
        public_name(self.tenant, path="tenant")
        if not _DIGEST.fullmatch(self.digest):
            raise InvalidInputError("digest must be a SHA-256 in hex", path="digest")
        if not 0 <= self.created_ms <= CREATED_MAX:
            raise InvalidInputError("created_ms is no time", path="created_ms")
