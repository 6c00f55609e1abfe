"""Which key a header names, however often it comes."""

from __future__ import annotations

from axiom_common.model.access import ApiKey, Role
from axiom_gateway.admin_access import HEARD_BYTES_MAX, HEARD_MAX, Access, digest_of


def key(name: str, secret: str, tenant: str = "default") -> ApiKey:
    return ApiKey(name=name, role=Role.CLIENT, digest=digest_of(secret), tenant=tenant)


def test_what_was_heard_before_is_judged_by_the_keys_of_now() -> None:
    access = Access(lambda: True)
    header = b"Bearer axk-a"
    assert access.key_of(header) is None
    for tenant in ("acme", "other"):
        access.keys_changed({"a": key("a", "axk-a", tenant)})
        for _ in range(2):
            heard = access.key_of(header)
            assert heard is not None
            assert heard.tenant == tenant
    access.keys_changed({})
    assert access.key_of(header) is None


def test_what_is_remembered_of_headers_is_bounded() -> None:
    access = Access(lambda: True)
    access.keys_changed({"a": key("a", "axk-a")})
    for number in range(3 * HEARD_MAX):
        assert access.key_of(b"Bearer %d" % number) is None
        assert access.key_of(b"Bearer axk-a") is not None
    assert access.key_of(b"Basic axk-a") is None
    assert access.key_of(b"Bearer " + b"x" * HEARD_BYTES_MAX) is None
    assert len(access._heard) <= HEARD_MAX
    assert max(map(len, access._heard)) <= HEARD_BYTES_MAX
