"""Errors as OpenAI's clients expect them: a status, and an object that names the field."""

import math

from starlette.responses import JSONResponse

from dragonrt.errors import DragonError


class ApiError(DragonError):
    """A rejected request, or an answer that failed.

    `code` is OpenAI's error code, `param` the name of the faulty field, `retry_after_s` when to
    retry.
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
        self.status, self.code, self.param = status, code, param
        self.headers: dict[str, str] = {}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
        if status in (408, 413):
            self.headers["Connection"] = "close"  # the body that follows is not read
        if retry_after_s is not None:
            self.headers["Retry-After"] = str(max(1, math.ceil(retry_after_s)))

    def to_json(self) -> dict[str, dict[str, str | None]]:
        """Return the body of the response, or the data of an event once an answer has begun."""
        usual = "invalid_request_error" if self.status < 500 else "server_error"
        kind = {401: "authentication_error", 429: "rate_limit_error"}.get(self.status, usual)
        about = {"message": str(self), "type": kind, "param": self.param, "code": self.code}
        return {"error": about}

    @property
    def response(self) -> JSONResponse:
        """Return the HTTP response."""
        return JSONResponse(self.to_json(), self.status, self.headers)


def unsupported(name: str, instead: str = "leave it out", value: str | None = None) -> ApiError:
    """Return the error of a field, or a `value` of it, that is not supported."""
    what = name if value is None else f"{name} {value}"
    return ApiError(
        400, f"{what} is not supported here: {instead}", code="unsupported_parameter", param=name
    )


def invalid(name: str, must: str) -> ApiError:
    """Return the error of an invalid value of a field."""
    return ApiError(400, f"{name} must be {must}", code="invalid_value", param=name)
