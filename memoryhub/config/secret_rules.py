"""A project's own rules for secrets, as its settings say them."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

if TYPE_CHECKING:
    from memoryhub.core.secrets.custom_rules import OwnRules

MAX_RULES = 100
MAX_ALLOWED = 500


def _taken(pattern: str) -> str:
    from memoryhub.core.secrets.custom_rules import checked_pattern

    checked_pattern(pattern)
    return pattern


def _allowed(text: str) -> str:
    from memoryhub.core.secrets.custom_rules import pattern_of

    pattern = pattern_of(text)
    return text if pattern is None else f"/{_taken(pattern)}/"


Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Allowed = Annotated[str, StringConstraints(min_length=3, max_length=1000), AfterValidator(_allowed)]


class SecretRule(BaseModel):
    """One kind of secret that only this project knows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Slug
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_taken)] = Field(
        description="for RE2; the first group is the secret, or all that matches"
    )
    type: Slug = Field("secret", description="stands in the tag")
    keywords: tuple[Annotated[str, StringConstraints(min_length=1, max_length=60)], ...] = Field(
        (), max_length=20, description="one must be in a text for the pattern to be tried"
    )
    description: str = Field("", max_length=300)


@lru_cache(maxsize=64)
def compiled_rules(rules: tuple[SecretRule, ...], allow: tuple[str, ...]) -> OwnRules:
    """Return rules and an allow-list, ready to use; the same objects for the same ones."""
    from memoryhub.core.secrets.custom_rules import NO_RULES, OwnRule, compile_rules

    if not rules and not allow:
        return NO_RULES
    return compile_rules((OwnRule(each.id, each.pattern, each.type, each.keywords) for each in rules), allow)
