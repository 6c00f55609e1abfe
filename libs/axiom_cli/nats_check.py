"""The doctor's look at NATS, as who a service's settings say: with its nkey, over TLS."""

from __future__ import annotations

import ssl

import nats
import nats.errors
import nats.js.errors
from nats.aio.client import Client

from axiom_cli.checks import Check, Verdict
from axiom_common.drivers.nats_connection import CONNECTION_ERRORS, inbox_of
from axiom_common.drivers.nats_credentials import NatsCredentials
from axiom_common.errors import SettingsError

NAME = "doctor"
_NATS = "nats"
_REFUSED = "authorization violation"
_NO_RIGHT = "permissions violation"
_AS_OPERATOR = "ask as the region's operator: AXIOM_NATS_NKEY_SEED_FILE=operator.nk"


async def nats_check(url: str, credentials: NatsCredentials, *, timeout_s: float) -> Check:
    """Whether a client gets in there, and whether JetStream is on."""
    heard: list[str] = []

    async def hear(error: Exception) -> None:
        heard.append(str(error).lower())

    try:
        client = await nats.connect(
            [server.strip() for server in url.split(",")],
            name=NAME,
            inbox_prefix=inbox_of(NAME),
            allow_reconnect=False,
            # How often each server is tried before the client gives up; 0 would mean for ever.
            max_reconnect_attempts=1,
            reconnect_time_wait=0,
            connect_timeout=timeout_s,
            error_cb=hear,
            nkeys_seed_str=credentials.read_seed(),
            tls=credentials.tls(),
        )
    except SettingsError as error:
        return _check(Verdict.BROKEN, str(error), "mend the settings that services have as well")
    except (*CONNECTION_ERRORS, ValueError) as error:
        return _shut_out(url, error, credentials)
    try:
        return await _jetstream(url, client, credentials, heard, timeout_s=timeout_s)
    finally:
        await client.close()


async def _jetstream(
    url: str, client: Client, credentials: NatsCredentials, heard: list[str], *, timeout_s: float
) -> Check:
    server = f"{url} is NATS {client.connected_server_version}"
    try:
        await client.jetstream(timeout=timeout_s).account_info()
    except nats.js.errors.ServiceUnavailableError:
        if credentials.nkey_seed_file is not None:
            detail = f"{server}; of JetStream nothing is known: this user's account has none"
            return _check(Verdict.UNCHECKED, detail, _AS_OPERATOR)
        advice = "start nats-server with -js: desired state lives in JetStream"
        return _check(Verdict.BROKEN, f"{server} without JetStream", advice)
    except (nats.errors.Error, TimeoutError) as error:
        if any(_NO_RIGHT in one for one in heard):
            detail = f"{server}; of JetStream nothing is known: this user may not ask"
            return _check(Verdict.UNCHECKED, detail, _AS_OPERATOR)
        detail = f"{server}; JetStream gives no answer: {str(error) or type(error).__name__}"
        advice = "see the servers' logs: JetStream needs a majority of them"
        return _check(Verdict.BROKEN, detail, advice)
    return _check(Verdict.OK, f"{server}, JetStream on")


def _shut_out(url: str, error: Exception, credentials: NatsCredentials) -> Check:
    """A server that is there and does not let one in is no fault of its own where nothing was shown
    to it."""
    cause = str(error) or type(error).__name__
    if isinstance(error, ssl.SSLCertVerificationError):
        return _wants(
            f"{url} has a certificate that can't be trusted here: {error.verify_message}",
            given=credentials.ca_file is not None,
            setting="nats_ca_file",
            wrong="that CA's servers have other certificates, or other names: mend either",
        )
    if _REFUSED in cause.lower():
        return _wants(
            f"{url} asks who one is and lets nobody in without a key that it knows",
            given=credentials.nkey_seed_file is not None,
            setting="nats_nkey_seed_file",
            wrong="put the public key of this seed into users.conf with `axiom nats config`, and "
            "reload the servers",
        )
    if isinstance(error, ConnectionResetError | BrokenPipeError | ssl.SSLError):
        return _wants(
            f"{url} ends the connection: {cause}",
            given=credentials.cert_file is not None,
            setting="nats_cert_file and nats_key_file, if clients need a certificate",
            wrong="see the server's log",
        )
    advice = "start nats-server -js there, or mend the URL"
    return _check(Verdict.BROKEN, f"{url} gives no answer: {cause}", advice)


def _wants(detail: str, *, given: bool, setting: str, wrong: str) -> Check:
    if given:
        return _check(Verdict.BROKEN, detail, wrong)
    advice = f"name {setting} as services do: in the file of --config, or as AXIOM_..."
    return _check(Verdict.UNCHECKED, f"not checked: {detail}", advice)


def _check(verdict: Verdict, detail: str, advice: str = "") -> Check:
    return Check(name=_NATS, verdict=verdict, detail=detail, advice=advice)
