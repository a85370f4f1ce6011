"""The settings of a project: their types, defaults and descriptions, and its own rules for secrets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal

from django.core.exceptions import ImproperlyConfigured
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from memoryhub.config.retention_rules import (
    MAX_RULES,
    Days,
    Lessons,
    RetentionRule,
    ReviewPolicy,
    SearchMode,
    TurnPolicy,
)
from memoryhub.core.errors import Invalid
from memoryhub.core.kinds import KINDS
from memoryhub.core.text import did_you_mean
from memoryhub.core.validation import explain

if TYPE_CHECKING:
    from memoryhub.core.secrets.catalogue import CustomRules

MAX_SECRET_RULES = 100
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


class Ranking(BaseModel):
    """The weight of each part of a query's ranking; each part is 0 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: float = Field(5.0, ge=0, le=100)
    tags: float = Field(3.0, ge=0, le=100)
    scope: float = Field(2.0, ge=0, le=100)
    priority: float = Field(1.5, ge=0, le=100)
    text: float = Field(1.0, ge=0, le=100)
    recency: float = Field(0.5, ge=0, le=100)


class Topic(StrEnum):
    """Groups of settings, in the order of the Settings page."""

    SESSIONS = "Sessions and turns"
    REVIEW = "Review"
    RETENTION = "Retention"
    SECRETS = "Secrets"
    FINDING = "Search"


GROUP_HELP = {
    Topic.SESSIONS: "What agents record, and when their turns and sessions end.",
    Topic.REVIEW: "Which memories a person accepts before agents see them, and which are looked at again later.",
    Topic.RETENTION: "How long captured events and deleted memories are kept.",
    Topic.SECRETS: "What is masked before a text is stored.",
    Topic.FINDING: "How memories are found and ranked, and what agents get at a prompt.",
}


class InFolder(Enum):
    """Which values a folder's file may set; the file may be a stranger's and must not weaken protection."""

    NOTHING = auto()
    # A number up to the default, or a choice other than the default.
    STRICTER = auto()
    ANY = auto()


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What a setting declares besides its type, default and description."""

    group: Topic
    in_folder: InFolder = InFolder.NOTHING
    # On the Settings page; by default derived from the setting's name
    label: str = ""
    # Below the label; by default the description
    help: str = ""
    # After the field, such as ``minutes``
    unit: str = ""
    # What the page calls each choice, if not by its value
    choices: Mapping[str, str] = field(default_factory=dict, hash=False)


def _split(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    return [part.strip() for part in value.split(",") if part.strip()]


Source = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=200)]


_REVIEWABLE = ("decision", *KINDS)
_REVIEWABLE_NAME = re.compile(rf"({'|'.join(_REVIEWABLE)})(/[\w.-]{{1,64}})?")


def _reviewable(name: str) -> str:
    if not _REVIEWABLE_NAME.fullmatch(name):
        names = f"{', '.join(_REVIEWABLE[:-1])} or {_REVIEWABLE[-1]}"
        raise ValueError(f"must be {names}, or a type of it: knowledge/fact")
    return name


# Days by ``decision``, ``decision/<impact>``, kind of memory or ``<kind>/<type>``; the most specific name applies.
ReviewAfter = dict[Annotated[str, AfterValidator(_reviewable)], Annotated[int, Field(ge=1, le=36_500)]]


class _Settings(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name, about in cls.model_fields.items():
            if not any(isinstance(info, SettingInfo) for info in about.metadata):
                raise ImproperlyConfigured(f"setting {name!r} declares no group; annotate it with SettingInfo(Group.…)")


_TURN_POLICIES = {
    "auto": "Automatic: the hub opens and closes turns",
    "strict": "Strict: every write needs a turn's token",
}
_SEARCH_MODES = {
    "auto": "Automatic: by words, and by meaning where there is a model",
    "fts5": "By words only, with the full-text index",
    "basic": "Basic: by parts of words, without an index",
}
_REVIEW_POLICIES = {"off": "None", "sampled": "A sample", "all": "All of them"}
_LESSONS = {
    "off": "Nothing is proposed",
    "proposed": "They wait in the inbox",
    "accepted": "They are accepted without review",
}
_PERSONAL = {
    "email": "E-mail addresses",
    "phone": "Phone numbers",
    "card": "Card numbers",
    "iban": "Bank account numbers (IBAN)",
    "national_id": "National ids",
}


class ProjectSettings(_Settings):
    """All settings of a project."""

    turn_policy: Annotated[
        TurnPolicy,
        SettingInfo(Topic.SESSIONS, InFolder.STRICTER, help="Who opens and closes turns.", choices=_TURN_POLICIES),
    ] = Field(TurnPolicy.AUTO, description="strict requires an open turn's token for every write")
    ack_token_minutes: Annotated[
        int, SettingInfo(Topic.SESSIONS, InFolder.STRICTER, label="Turn timeout", unit="minutes")
    ] = Field(30, ge=1, le=24 * 60, description="minutes that a turn stays open after its last event")
    session_idle_hours: Annotated[int, SettingInfo(Topic.SESSIONS, label="Session timeout", unit="hours")] = Field(
        12, ge=1, le=24 * 30, description="idle hours after which an open session ends"
    )
    capture_decisions: Annotated[bool, SettingInfo(Topic.SESSIONS, InFolder.ANY, label="Decisions by agents")] = Field(
        True, description="agents may record decisions; people always may"
    )
    capture_commits: Annotated[bool, SettingInfo(Topic.SESSIONS, InFolder.ANY)] = Field(
        True, description="record commits seen in tool events"
    )
    conflict_window_seconds: Annotated[
        float, SettingInfo(Topic.SESSIONS, InFolder.STRICTER, label="Conflict window", unit="seconds")
    ] = Field(
        5.0, ge=0, le=3600, description="two writes from one version within this time are both kept, as a conflict"
    )
    search_mode: Annotated[
        SearchMode, SettingInfo(Topic.FINDING, InFolder.ANY, help="How searches look for words.", choices=_SEARCH_MODES)
    ] = Field(SearchMode.AUTO, description="auto; fts5: by words only, not by meaning; basic: by LIKE")
    rank_by_use: Annotated[bool, SettingInfo(Topic.FINDING, InFolder.ANY)] = Field(
        True, description="entries that were fetched, cited or updated rank up to a tenth higher"
    )
    recall: Annotated[bool, SettingInfo(Topic.FINDING, InFolder.ANY, label="Recall at each prompt")] = Field(
        True, description="a client's prompt is answered with at most three entries that it is about"
    )
    recall_threshold: Annotated[float, SettingInfo(Topic.FINDING, InFolder.ANY)] = Field(
        0.42, ge=0, le=1, description="how likely such an entry is about the prompt, at least; 1 gives nothing"
    )
    notes: Annotated[bool, SettingInfo(Topic.FINDING, InFolder.ANY, label="Notes before actions")] = Field(
        True, description="a client is given at most one line before it runs a command or edits a file"
    )
    held_out_percent: Annotated[
        int,
        SettingInfo(
            Topic.FINDING,
            label="Sessions without memory",
            help="Share of new sessions that get no memory unasked, to measure what it is worth.",
            unit="percent",
        ),
    ] = Field(0, ge=0, le=50, description="percentage of new sessions that get no memory unasked, to measure its worth")
    embedding_model: Annotated[str, SettingInfo(Topic.FINDING)] = Field(
        "auto",
        min_length=1,
        max_length=300,
        description="model for search by meaning: auto, none, a folder, or a hub id",
    )
    review_policy: Annotated[
        ReviewPolicy,
        SettingInfo(
            Topic.REVIEW,
            label="Writes to review",
            help="What agents write that a person accepts before others see it.",
            choices=_REVIEW_POLICIES,
        ),
    ] = Field(ReviewPolicy.OFF, description="which writes of agents need review: off, sampled or all")
    review_sample_percent: Annotated[int, SettingInfo(Topic.REVIEW, label="Size of the sample", unit="percent")] = (
        Field(10, ge=1, le=100, description="percentage of texts to sample")
    )
    review_sources: Annotated[
        list[Source],
        BeforeValidator(_split),
        SettingInfo(
            Topic.REVIEW,
            label="Sources to review",
            help="Interfaces and agents whose writes all need review, one per line: mcp, import, agent:codex.",
        ),
    ] = Field(default_factory=list, max_length=50, description="interfaces and agents whose writes all need review")
    review_below_confidence: Annotated[float, SettingInfo(Topic.REVIEW, label="Confidence threshold for review")] = (
        Field(0.0, ge=0, le=1, description="a memory of kind knowledge with a lower confidence needs review")
    )
    packs_accepted_only: Annotated[bool, SettingInfo(Topic.REVIEW, label="Only accepted entries in packs")] = Field(
        True, description="context packs leave out entries that await review"
    )
    lessons: Annotated[
        Lessons,
        SettingInfo(
            Topic.REVIEW,
            label="Lessons of a session",
            help="Corrections by the user, errors and their cures, commands and files that repeat: found by rules at "
            "the end of a session.",
            choices=_LESSONS,
        ),
    ] = Field(Lessons.PROPOSED, description="what rules find in a session: off, proposed to the inbox, or accepted")
    ask_agent: Annotated[bool, SettingInfo(Topic.REVIEW, label="Ask the agent about lessons")] = Field(
        False, description="ask the agent once in a session to confirm its lessons, at the end of a turn"
    )
    review_after: Annotated[
        ReviewAfter,
        SettingInfo(
            Topic.REVIEW,
            label="Recheck after",
            help="Days without a look after which an entry needs a recheck, by kind: decision/critical.",
            unit="days",
        ),
    ] = Field(default_factory=dict, description="days without a look after which an entry needs a recheck, by kind")
    retention_days: Annotated[Days, SettingInfo(Topic.RETENTION, label="Delete captured events after", unit="days")] = (
        Field(365, description="captured events are deleted after this many days; never keeps them")
    )
    purge_deleted_after_days: Annotated[
        Days, SettingInfo(Topic.RETENTION, label="Erase deleted memories after", unit="days")
    ] = Field(90, description="deleted memories are erased after this many days; never keeps them")
    retention: Annotated[list[RetentionRule], SettingInfo(Topic.RETENTION, label="Retention rules")] = Field(
        default_factory=list,
        max_length=MAX_RULES,
        description="rules that apply before these two; the first match decides",
    )
    secret_rules: Annotated[list[SecretRule], SettingInfo(Topic.SECRETS, label="Custom rules")] = Field(
        default_factory=list, max_length=MAX_SECRET_RULES, description="custom rules for secrets, beside the rule pack"
    )
    secret_allow: Annotated[list[Allowed], SettingInfo(Topic.SECRETS, label="Allowlist")] = Field(
        default_factory=list,
        max_length=MAX_ALLOWED,
        description="allowlist: exact texts and /patterns/ that are not secrets",
    )
    mask_personal: Annotated[
        list[PersonalType],
        BeforeValidator(_split),
        SettingInfo(
            Topic.SECRETS,
            label="Mask personal data",
            help="Personal data that is masked as secrets are.",
            choices=_PERSONAL,
        ),
    ] = Field(
        default_factory=list,
        max_length=5,
        description="types of personal data to mask: email, phone, card, iban, national_id",
    )
    ranking: Annotated[Ranking, SettingInfo(Topic.FINDING, InFolder.ANY)] = Field(
        default_factory=Ranking, description="the weight of each part of a query's ranking"
    )


def setting_info(name: str) -> SettingInfo:
    """Return a setting's group and what a folder's file may set."""
    return next(info for info in ProjectSettings.model_fields[name].metadata if isinstance(info, SettingInfo))


def setting_label(name: str) -> str:
    """Return what people call a setting."""
    return setting_info(name).label or name.replace("_", " ").capitalize()


def check_settings(values: Mapping[str, Any]) -> ProjectSettings:
    """Return ``values`` as settings; missing ones and None take the default."""
    unknown = sorted(set(values) - set(ProjectSettings.model_fields))
    if unknown:
        fields = ProjectSettings.model_fields
        meant = did_you_mean(unknown[0], fields)
        raise Invalid(f"there is no setting {unknown[0][:64]!r}{meant}; known settings: {', '.join(fields)}")
    try:
        return ProjectSettings(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"setting {explain(error)}") from error
