"""The few exceptions of Axiom. Expected refusals are values with a `Reason`, never exceptions.

Each error carries a stable `code`; the edges (REST, /v1, the command line) turn it into their own
shape in one function.
"""

from __future__ import annotations


class AxiomError(Exception):
    """Base of every error that Axiom raises on purpose. `code` is stable and machine-readable."""

    code = "internal"


class InvalidInputError(AxiomError):
    """Input that can't be used. `path` names the field (dotted), when there is one."""

    code = "invalid-input"

    def __init__(self, message: str, *, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path


class NameTakenError(InvalidInputError):
    """The name stands for something else already."""

    code = "name-taken"


class SettingsError(AxiomError):
    """Settings that can't work: the process prints one line and exits with 2."""

    code = "invalid-settings"


class WireError(AxiomError):
    """A message that does not parse or breaks a bound. Counted, logged once a minute, dropped."""

    code = "invalid-message"


class UnavailableError(AxiomError):
    """A part that Axiom talks to (bus, store, engine, agent) did not answer in time."""

    code = "unavailable"


class ConflictError(AxiomError):
    """Somebody else changed the object first (compare-and-set failed, or it exists)."""

    code = "conflict"


class PreconditionError(AxiomError):
    """The caller named the version that it wants to change, and it is another one by now."""

    code = "precondition-failed"


class PreconditionRequiredError(AxiomError):
    """The caller would change what exists, and did not name the version that it saw."""

    code = "precondition-required"


class NotFoundError(AxiomError):
    """The object is not there."""

    code = "not-found"


class EngineCallError(AxiomError):
    """An engine answered a control call with an error. `status` is its HTTP status."""

    code = "engine-refused"

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status
