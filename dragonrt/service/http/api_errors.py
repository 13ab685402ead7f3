"""Errors as OpenAI's clients expect them: a status, and an object that names the field."""

import math

from starlette.responses import JSONResponse

from dragonrt.errors import DragonError


class ApiError(DragonError):
    """A request that is refused, or an answer that failed.

    `code` is OpenAI's word for programs, `param` names the field that is to blame.
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
        self.status, self.code, self.param = status, code, param
        self.headers: dict[str, str] = {}
        if status == 401:
            self.headers["WWW-Authenticate"] = "Bearer"
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
        """The response to the request."""
        return JSONResponse(self.to_json(), self.status, self.headers)


def unsupported(name: str, instead: str = "leave it out", value: str | None = None) -> ApiError:
    """Return the error of a field, or of a `value` of it, that means nothing here."""
    what = name if value is None else f"{name} {value}"
    return ApiError(
        400, f"{what} is not supported here: {instead}", code="unsupported_parameter", param=name
    )


def invalid(name: str, must: str) -> ApiError:
    """Return the error of a value that its field does not take."""
    return ApiError(400, f"{name} must be {must}", code="invalid_value", param=name)
