"""From a resource's parameters, which are text, to the command that they make."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from memoryhub.core.errors import Invalid
from memoryhub.core.validation import explain

C = TypeVar("C", bound=BaseModel)


def parsed(schema: type[C], parameters: dict[str, Any]) -> C:
    """Return the command that the parameters make.

    Raises:
        Invalid: one of them breaks a rule.
    """
    try:
        return schema.model_validate(parameters)
    except ValidationError as error:
        raise Invalid(explain(error)) from error
