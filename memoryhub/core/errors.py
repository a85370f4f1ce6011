"""The errors that callers see. Each has a stable ``code``, a message with the next step, and ``data`` for programs."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

INTERRUPTED_EXIT_CODE = 130  # the shells' code for a process ended by SIGINT
# REST and MCP over HTTP document problem types under this path.
PROBLEMS_PATH = "/api/v1/problems/"


class HubError(Exception):
    code: ClassVar[str] = "error"
    http_status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, **data: Any) -> None:
        super().__init__(message)
        self.message = message
        self.data = data

    def as_problem(self) -> dict[str, Any]:
        title = self.code.replace("_", " ").title()
        return {
            "type": f"{PROBLEMS_PATH}{self.code}",
            "title": title,
            "status": self.http_status,
            "detail": self.message,
            "code": self.code,
            **self.data,
        }


class Invalid(HubError):
    """The input breaks a rule; nothing was changed."""

    code = "invalid"
    http_status = 422
    exit_code = 2


class NotFound(HubError):
    """There is no such thing in this store."""

    code = "not_found"
    http_status = 404
    exit_code = 3


class Gone(HubError):
    """The thing was deleted; the message says how to restore it."""

    code = "gone"
    http_status = 410
    exit_code = 4


class ConflictError(HubError):
    """The thing exists already; the data names its id."""

    code = "conflict"
    http_status = 409
    exit_code = 5


class PreconditionFailed(HubError):
    """The caller read an older version than the current one."""

    code = "precondition_failed"
    http_status = 412
    exit_code = 6


class Locked(HubError):
    """Another process held the store for longer than the busy timeout."""

    code = "locked"
    http_status = 423
    exit_code = 7


class Unavailable(HubError):
    """The store cannot be opened, read or written now."""

    code = "unavailable"
    http_status = 503
    exit_code = 8


class OutcomeUnknown(Unavailable):
    """The store failed while it committed, so the write may be stored or not; the message says how to find out."""

    code = "outcome_unknown"
    exit_code = 20


class Damaged(Unavailable):
    """The log does not match its anchor, or is missing: writes are refused until a person decides."""

    code = "damaged"
    exit_code = 16


class Moved(Unavailable):
    """The store has moved to another place, which the message names; it is not read or written here any more."""

    code = "moved"
    exit_code = 19


class Busy(HubError):
    """Too much is waiting already; the same request succeeds later."""

    code = "busy"
    http_status = 503
    exit_code = 17


class TooMany(HubError):
    """The caller has too much open at once; end something, or try again later."""

    code = "too_many"
    http_status = 429
    exit_code = 18


class Forbidden(HubError):
    """The caller lacks the right to do this, or to do it here."""

    code = "forbidden"
    http_status = 403
    exit_code = 9


class Unauthorized(HubError):
    """The caller is not authenticated."""

    code = "unauthorized"
    http_status = 401
    exit_code = 10


class ConfirmationRequired(HubError):
    """The action cannot be undone and is not confirmed yet; nothing was changed.

    The message is a question for the user. The data has the ``id`` and the ``confirm_token`` with which the same call
    succeeds.
    """

    code = "confirmation_required"
    http_status = 409
    exit_code = 13

    def __init__(self, question: str, *, confirm_token: str, id: object, **data: Any) -> None:  # noqa: A002
        super().__init__(question, id=id, confirm_token=confirm_token, **data)


class ChoiceRequired(Invalid):
    """The caller must choose what happens; nothing was changed. The data has what the choice is about."""

    code = "choice_required"
    exit_code = 21

    def __init__(self, question: str, how: str, *, choices: Sequence[str], **data: Any) -> None:
        super().__init__(f"{question}; {how}", **data)
        self.question = question
        # Names of the true-or-false arguments of which the same call needs one
        self.choices = tuple(choices)


# Errors of HTTP itself, by code.
HTTP_PROBLEMS = {
    "bad_request": (400, "The request cannot be read, or was sent to another host's name."),
    "method_not_allowed": (
        405,
        "The method is not allowed at this address; the header Allow lists the methods that are.",
    ),
    "request_entity_too_large": (413, "The body is larger than this hub accepts."),
    "unsupported_media_type": (415, "The body is not application/json."),
    "internal_server_error": (500, "The hub failed; its log on standard error has the details."),
}


def describe_problem(code: str) -> dict[str, Any] | None:
    for error in _subclasses(HubError):
        if error.code == code:
            return {"code": code, "status": error.http_status, "meaning": inspect.getdoc(error) or ""}
    if code in HTTP_PROBLEMS:
        status, meaning = HTTP_PROBLEMS[code]
        return {"code": code, "status": status, "meaning": meaning}
    return None


def _subclasses(error: type[HubError]) -> Iterator[type[HubError]]:
    for subclass in error.__subclasses__():
        yield subclass
        yield from _subclasses(subclass)
