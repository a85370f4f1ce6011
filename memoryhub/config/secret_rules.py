"""A project's custom rules for secrets, as its settings declare them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from memoryhub.core.errors import Invalid

if TYPE_CHECKING:
    from memoryhub.core.secrets.catalogue import CustomRules

MAX_RULES = 100
MAX_ALLOWED = 500


def _checked_pattern(pattern: str) -> str:
    from memoryhub.core.secrets.catalogue import checked_pattern

    checked_pattern(pattern)
    return pattern


def _allowed(text: str) -> str:
    from memoryhub.core.secrets.catalogue import pattern_of

    pattern = pattern_of(text)
    return text if pattern is None else f"/{_checked_pattern(pattern)}/"


# As in ``memoryhub.core.secrets.catalogue``, which compiles patterns.
PersonalType = Literal["email", "phone", "card", "iban", "national_id"]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]{0,39}$")]
Allowed = Annotated[str, StringConstraints(min_length=3, max_length=1000), AfterValidator(_allowed)]


class SecretRule(BaseModel):
    """One kind of secret that only this project has."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: Slug
    pattern: Annotated[str, StringConstraints(min_length=1, max_length=1000), AfterValidator(_checked_pattern)] = Field(
        description="RE2; the secret is the first group, or the whole match"
    )
    type: Slug = Field("secret", description="shown in the tag")
    keywords: tuple[Annotated[str, StringConstraints(min_length=1, max_length=60)], ...] = Field(
        (), max_length=20, description="one must occur in a text for the pattern to be tried"
    )
    description: str = Field("", max_length=300)


def require_fast(rules: Iterable[SecretRule], allow: Iterable[str]) -> None:
    """Refuse rules that would slow down every write; those that are in use already stay.

    Raises:
        Invalid: the patterns are too large together.
    """
    from memoryhub.core.secrets.catalogue import MAX_SIZE, size_of

    size = size_of((rule.pattern for rule in rules), allow)
    if size > MAX_SIZE:
        raise Invalid(
            f"the patterns of secret_rules and secret_allow take {size:,} steps for each character, at most "
            f"{MAX_SIZE:,} are allowed; write {{20,}} instead of {{20,200}}, or use fewer patterns"
        )


@lru_cache(maxsize=64)
def compiled_rules(
    rules: tuple[SecretRule, ...], allow: tuple[str, ...], personal: tuple[str, ...] = ()
) -> CustomRules:
    """Return compiled rules, allowlist and types of personal data; the same object for equal arguments."""
    from memoryhub.core.secrets.catalogue import NO_RULES, CustomRule, Personal, compile_rules

    if not rules and not allow and not personal:
        return NO_RULES
    custom = (CustomRule(rule.id, rule.pattern, rule.type, rule.keywords) for rule in rules)
    return compile_rules(custom, allow, map(Personal, personal))
