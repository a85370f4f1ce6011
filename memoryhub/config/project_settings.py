"""A project's settings: which there are, what each may be, and what a folder's file may say of them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import Annotated, Any

from django.core.exceptions import ImproperlyConfigured
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from memoryhub.config.layers import CONFIG_FILE, OF_THE_HUB, decided, decided_outside, read_config
from memoryhub.config.retention_rules import MAX_RULES, Days, RetentionRule, ReviewPolicy, SearchMode, TurnPolicy
from memoryhub.config.secret_rules import MAX_ALLOWED, Allowed, SecretRule
from memoryhub.config.secret_rules import MAX_RULES as MAX_SECRET_RULES
from memoryhub.core.errors import Invalid, Unavailable
from memoryhub.core.kinds.builtin import KINDS
from memoryhub.core.validation import explain


class Ranking(BaseModel):
    """How much each part counts when a query ranks what it found; each part is 0 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: float = Field(5.0, ge=0, le=100)
    tags: float = Field(3.0, ge=0, le=100)
    scope: float = Field(2.0, ge=0, le=100)
    priority: float = Field(1.5, ge=0, le=100)
    text: float = Field(1.0, ge=0, le=100)
    recency: float = Field(0.5, ge=0, le=100)


class Group(StrEnum):
    """The parts of the page of settings, in their order."""

    SESSIONS = "Sessions and turns"
    REVIEW = "Review"
    RETENTION = "Retention"
    SECRETS = "Secrets"
    FINDING = "Finding"


class InFolder(Enum):
    """What a folder's file may set, which may be a stranger's: nothing by which less would be protected."""

    NOTHING = auto()
    STRICTER = auto()
    """A number of at most the default, or another choice than the default."""
    ANY = auto()


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """What a setting declares besides its type, its default and its description."""

    group: Group
    in_folder: InFolder = InFolder.NOTHING


def _listed(value: Any) -> Any:
    """Return a list of the environment, separated by commas, as one."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Source = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=200)]


_AGING = ("decision", *KINDS)
_GROWS_OLD = re.compile(rf"({'|'.join(_AGING)})(/[\w.-]{{1,64}})?")


def _growing_old(name: str) -> str:
    if not _GROWS_OLD.fullmatch(name):
        known = f"{', '.join(_AGING[:-1])} or {_AGING[-1]}"
        raise ValueError(f"must be {known}, or a type of it: knowledge/fact")
    return name


ReviewAfter = dict[Annotated[str, AfterValidator(_growing_old)], Annotated[int, Field(ge=1, le=36_500)]]
"""Days by ``decision``, ``decision/<impact>``, a kind of memory or ``<kind>/<type>``; the closest name holds."""


class _Settings(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for name, field in cls.model_fields.items():
            if not any(isinstance(about, SettingInfo) for about in field.metadata):
                raise ImproperlyConfigured(f"setting {name!r} declares no group; annotate it with SettingInfo(Group.…)")


class ProjectSettings(_Settings):
    """What a project can be told."""

    turn_policy: Annotated[TurnPolicy, SettingInfo(Group.SESSIONS, InFolder.STRICTER)] = Field(
        TurnPolicy.AUTO, description="strict asks every write for an open turn's token"
    )
    ack_token_minutes: Annotated[int, SettingInfo(Group.SESSIONS, InFolder.STRICTER)] = Field(
        30, ge=1, le=24 * 60, description="a turn stays open so long after its last event"
    )
    session_idle_hours: Annotated[int, SettingInfo(Group.SESSIONS)] = Field(
        12, ge=1, le=24 * 30, description="a session left open is ended after so long"
    )
    capture_decisions: Annotated[bool, SettingInfo(Group.SESSIONS, InFolder.ANY)] = Field(
        True, description="agents record decisions; a person may in any case"
    )
    capture_commits: Annotated[bool, SettingInfo(Group.SESSIONS, InFolder.ANY)] = Field(
        True, description="record a commit that is seen in a tool's event"
    )
    conflict_window_seconds: Annotated[float, SettingInfo(Group.SESSIONS, InFolder.STRICTER)] = Field(
        5.0, ge=0, le=3600, description="two writes from one version within so long are both kept, as a conflict"
    )
    search_mode: Annotated[SearchMode, SettingInfo(Group.FINDING, InFolder.ANY)] = Field(
        SearchMode.AUTO, description="auto; fts5: by words alone, never by meaning; basic: by LIKE"
    )
    rank_by_use: Annotated[bool, SettingInfo(Group.FINDING, InFolder.ANY)] = Field(
        True, description="what was fetched, cited or updated counts up to a tenth more"
    )
    embedding_model: Annotated[str, SettingInfo(Group.FINDING)] = Field(
        "auto", min_length=1, max_length=300, description="what finds by meaning: auto, none, a folder, or a hub id"
    )
    review_policy: Annotated[ReviewPolicy, SettingInfo(Group.REVIEW)] = Field(
        ReviewPolicy.OFF, description="which of what agents write waits for a person: off, sampled or all"
    )
    review_sample_percent: Annotated[int, SettingInfo(Group.REVIEW)] = Field(
        10, ge=1, le=100, description="so many of a hundred texts are sampled"
    )
    review_sources: Annotated[list[Source], BeforeValidator(_listed), SettingInfo(Group.REVIEW)] = Field(
        default_factory=list, max_length=50, description="doors and agents of which everything waits for a person"
    )
    review_below_confidence: Annotated[float, SettingInfo(Group.REVIEW)] = Field(
        0.0, ge=0, le=1, description="knowledge that is less certain waits for a person"
    )
    packs_accepted_only: Annotated[bool, SettingInfo(Group.REVIEW)] = Field(
        True, description="context packs leave out what waits for a person"
    )
    review_after: Annotated[ReviewAfter, SettingInfo(Group.REVIEW)] = Field(
        default_factory=dict, description="days after which what nobody looked at is to be affirmed, by kind"
    )
    retention_days: Annotated[Days, SettingInfo(Group.RETENTION)] = Field(
        365, description="what was captured goes after so many days; never keeps it"
    )
    purge_deleted_after_days: Annotated[Days, SettingInfo(Group.RETENTION)] = Field(
        90, description="a memory that was deleted goes for good after so many days; never keeps it"
    )
    retention: Annotated[list[RetentionRule], SettingInfo(Group.RETENTION)] = Field(
        default_factory=list, max_length=MAX_RULES, description="rules that come before these two; the first decides"
    )
    secret_rules: Annotated[list[SecretRule], SettingInfo(Group.SECRETS)] = Field(
        default_factory=list, max_length=MAX_SECRET_RULES, description="what is a secret here besides the rule pack"
    )
    secret_allow: Annotated[list[Allowed], SettingInfo(Group.SECRETS)] = Field(
        default_factory=list, max_length=MAX_ALLOWED, description="exact texts and /patterns/ that are no secrets here"
    )
    ranking: Annotated[Ranking, SettingInfo(Group.FINDING, InFolder.ANY)] = Field(
        default_factory=Ranking, description="the weight of each part of a query's ranking"
    )


def setting_info(name: str) -> SettingInfo:
    """Return what a setting declares."""
    return next(about for about in ProjectSettings.model_fields[name].metadata if isinstance(about, SettingInfo))


def project_settings() -> ProjectSettings:
    """Return the settings of the current store's project, for who works in the current folder.

    Raises:
        Unavailable: what decides a setting cannot be read, or is no value of it; the message says where it stands.
    """
    layers = decided(ProjectSettings.model_fields)
    try:
        return ProjectSettings(**{name: value for name, (_, value) in layers.items()})
    except ValidationError as error:
        wrong = str(error.errors(include_url=False)[0]["loc"][0])
        raise Unavailable(f"setting {explain(error)}; mend it where it is set, in {layers[wrong][0]}") from error


def settings_decided_by() -> dict[str, str]:
    """Return who decides each setting that anybody has decided: a layer's name, or a folder's file.

    Raises:
        Unavailable: as ``project_settings``.
    """
    return {name: by for name, (by, _) in decided(ProjectSettings.model_fields).items()}


def settings_decided_elsewhere() -> dict[str, str]:
    """Return the settings that the project itself cannot decide, each with what does.

    Raises:
        Unavailable: as ``project_settings``.
    """
    return {name: by for name, (by, _) in decided_outside(ProjectSettings.model_fields).items()}


def config_problem() -> str:
    """Return what is wrong with ``config.toml`` or a variable, as one sentence; empty where all can be read."""
    try:
        check_settings({name: value for name, (_, value) in decided_outside(ProjectSettings.model_fields).items()})
    except Unavailable as error:
        return error.message
    except Invalid as error:
        return f"{error.message}; mend it where it is set, in the environment or {CONFIG_FILE} in the home folder"
    return ""


def unknown_in_config() -> list[str]:
    """Return the names in ``config.toml`` that are no settings, and do nothing."""
    try:
        return sorted(set(read_config()) - set(ProjectSettings.model_fields) - OF_THE_HUB)
    except Unavailable:
        return []


def check_settings(values: Mapping[str, Any]) -> ProjectSettings:
    """Return ``values`` as settings, the others and those that are None at their defaults.

    Raises:
        Invalid: a name is unknown or a value is not one that the setting takes.
    """
    unknown = sorted(set(values) - set(ProjectSettings.model_fields))
    if unknown:
        known = ", ".join(ProjectSettings.model_fields)
        raise Invalid(f"there is no setting {unknown[0]!r}; known are: {known}")
    try:
        return ProjectSettings(**{name: value for name, value in values.items() if value is not None})
    except ValidationError as error:
        raise Invalid(f"setting {explain(error)}") from error
