"""Who may use /v1 where it takes a key: whoever has one, whatever its role."""

from __future__ import annotations

from axiom_common.errors import UnavailableError
from axiom_common.wire import headers
from axiom_gateway import errors
from axiom_gateway.admin_access import Access
from axiom_gateway.admin_problems import CHALLENGE, UnauthenticatedError
from axiom_gateway.asgi import Exchange


class V1Access:
    """The door of /v1. `required`: whether a request needs a key at all; most clients send some
    word as theirs in any case, which is not looked at then."""

    def __init__(self, access: Access, *, required: bool) -> None:
        self._access = access
        self._required = required

    def admit(self, exchange: Exchange) -> None:
        """ApiError for a request without a key that is in force, its body left unread."""
        if not self._required:
            return
        try:
            self._access.key_in(exchange.all_headers(headers.AUTHORIZATION))
        except UnauthenticatedError as error:
            exchange.skip_body()
            exchange.set_header(headers.WWW_AUTHENTICATE.encode(), CHALLENGE.encode())
            raise errors.invalid_key(str(error)) from error
        except UnavailableError as error:
            exchange.skip_body()
            raise errors.keys_unknown() from error
