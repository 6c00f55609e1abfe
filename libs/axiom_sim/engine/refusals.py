"""Error answers, in the shapes that vLLM gives them."""

from __future__ import annotations

from axiom_common.errors import AxiomError

INTERNAL = "InternalServerError"


class RefusedError(AxiomError):
    """The request is answered with an error: HTTP `status`, vLLM's error `kind` and `param`."""

    code = "engine-refused"

    def __init__(self, status: int, message: str, *, kind: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param

    def as_json(self) -> dict[str, object]:
        """The body."""
        return error_body(str(self), kind=self.kind, param=self.param, status=self.status)


def error_body(message: str, *, kind: str, param: str | None, status: int) -> dict[str, object]:
    """vLLM's one error shape, in bodies and in streams."""
    return {"error": {"message": message, "type": kind, "param": param, "code": status}}


def bad_field(path: str, problem: str, message: str, given: object) -> RefusedError:
    """A field that is missing or of the wrong type: 400, naming the field."""
    detail = {"type": problem, "loc": path, "msg": message, "input": _shown(given)}
    return RefusedError(400, f"1 validation error:\n  {detail}", kind="Bad Request", param=path)


def bad_value(name: str, message: str, value: object = None) -> RefusedError:
    """A field whose value can't be used: 400, naming the parameter."""
    suffix = "" if value is None else f", value={value}"
    return RefusedError(
        400, f"{message} (parameter={name}{suffix})", kind="BadRequestError", param=name
    )


def unknown_model(name: str, base: str) -> RefusedError:
    """404 for a model that is neither the base model nor a registered adapter."""
    return RefusedError(
        404,
        f"The model `{name}` does not exist. Valid aliases: {base}.",
        kind="NotFoundError",
        param="model",
    )


def queue_full() -> RefusedError:
    """503: as many requests are in flight as `--max-num-queued-reqs` admits."""
    return RefusedError(
        503,
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance.",
        kind="Service Unavailable",
    )


def internal_error(message: str = "Internal server error") -> RefusedError:
    """500."""
    return RefusedError(500, message, kind=INTERNAL)


def _shown(given: object) -> str:
    if isinstance(given, dict | list):
        return f"<{type(given).__name__} of {len(given)} items>"
    return str(given)[:80]
