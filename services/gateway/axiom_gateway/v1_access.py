"""Who may use /v1 where it takes a key, whatever its role; and whose each request is."""

from __future__ import annotations

from axiom_common.errors import UnavailableError
from axiom_common.model.access import ApiKey
from axiom_common.model.tenant import DEFAULT_TENANT
from axiom_common.wire import headers
from axiom_gateway import errors
from axiom_gateway.admin_access import Access
from axiom_gateway.admin_problems import CHALLENGE, UnauthenticatedError
from axiom_gateway.asgi import Exchange

_AUTHORIZATION = headers.AUTHORIZATION.encode()


class V1Access:
    """The door of /v1. `required`: whether a request needs a key at all; most clients send some
    word as theirs in any case, and where none is needed one that is no key is not minded."""

    def __init__(self, access: Access, *, required: bool) -> None:
        self._access = access
        self._required = required

    def admit(self, exchange: Exchange) -> None:
        """ApiError for a request without a key that is in force, its body left unread."""
        if self._required:
            self._key(exchange)

    def tenant(self, exchange: Exchange) -> str:
        """The tenant of the key that a request came with, or the default one. Only once this
        gateway has started, as before it may know of no keys; ApiError as of `admit`."""
        given = exchange.raw_header(_AUTHORIZATION)
        if given is None:
            return DEFAULT_TENANT.name
        key = self._access.key_of(given)
        if key is None and self._required:
            key = self._key(exchange)
        return DEFAULT_TENANT.name if key is None else key.tenant

    def _key(self, exchange: Exchange) -> ApiKey:
        try:
            return self._access.key_in(exchange.all_headers(headers.AUTHORIZATION))
        except UnauthenticatedError as error:
            exchange.skip_body()
            exchange.set_header(headers.WWW_AUTHENTICATE.encode(), CHALLENGE.encode())
            raise errors.invalid_key(str(error)) from error
        except UnavailableError as error:
            exchange.skip_body()
            raise errors.keys_unknown() from error
