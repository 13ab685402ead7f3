"""Errors as OpenAI's clients expect them: a status, and an object that names the field."""

import math
from typing import Any

from dragonrt.errors import DragonError


class ApiError(DragonError):
    """A request that is refused, or an answer that failed.

    `kind` and `code` are OpenAI's words for programs, `param` names the field that is to blame.
    `retry_after_s` says when it is worth trying again.
    """

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def kind(self) -> str:
        """What OpenAI calls the error's type."""
        if self.status == 401:
            return "authentication_error"
        if self.status == 429:
            return "rate_limit_error"
        return "invalid_request_error" if self.status < 500 else "server_error"

    @property
    def headers(self) -> dict[str, str]:
        """What stands in the response's head beside the status."""
        if self.status == 401:
            return {"WWW-Authenticate": "Bearer"}
        if self.retry_after_s is not None:
            return {"Retry-After": str(max(1, math.ceil(self.retry_after_s)))}
        return {}

    def to_json(self) -> dict[str, Any]:
        """The body of the response, and the data of an event once an answer has begun."""
        about = {"message": str(self), "type": self.kind, "param": self.param, "code": self.code}
        return {"error": about}


def unsupported(name: str, instead: str = "leave it out", value: str | None = None) -> ApiError:
    """A field, or a `value` of it, that means nothing here."""
    what = name if value is None else f"{name} {value}"
    return ApiError(
        400, f"{what} is not supported here: {instead}", code="unsupported_parameter", param=name
    )


def invalid(name: str, must: str) -> ApiError:
    """A value that its field does not take."""
    return ApiError(400, f"{name} must be {must}", code="invalid_value", param=name)
