"""A project's settings: from the environment, then the hub's ``config.toml``, then the project's own.

The first of them that names a setting decides it.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, ValidationError

from memoryhub import env
from memoryhub.core import rows
from memoryhub.core.errors import Invalid
from memoryhub.core.validation import explain
from sessions_app.choices import ReviewPolicy, TurnPolicy
from sessions_app.retaining import MAX_RULES, Days, RetentionRule
from sessions_app.secret_rules import MAX_ALLOWED, Allowed, SecretRule
from sessions_app.secret_rules import MAX_RULES as MAX_SECRET_RULES

PREFIX = "MEMORY_HUB_"
CONFIG_FILE = "config.toml"


class Ranking(BaseModel):
    """How much each part counts when a query ranks what it found; each part is 0 to 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    relation: float = Field(5.0, ge=0, le=100)
    tags: float = Field(3.0, ge=0, le=100)
    scope: float = Field(2.0, ge=0, le=100)
    priority: float = Field(1.5, ge=0, le=100)
    text: float = Field(1.0, ge=0, le=100)
    recency: float = Field(0.5, ge=0, le=100)


def _listed(value: Any) -> Any:
    """Return a list of the environment, separated by commas, as one."""
    return [part.strip() for part in value.split(",") if part.strip()] if isinstance(value, str) else value


Source = Annotated[str, StringConstraints(strip_whitespace=True, to_lower=True, min_length=1, max_length=200)]


_GROWS_OLD = re.compile(r"(decision|observation|guideline|tool|knowledge)(/[\w.-]{1,64})?")


def _growing_old(name: str) -> str:
    if not _GROWS_OLD.fullmatch(name):
        raise ValueError("must be decision, observation, guideline, tool or knowledge, or a type of it: knowledge/fact")
    return name


ReviewAfter = dict[Annotated[str, AfterValidator(_growing_old)], Annotated[int, Field(ge=1, le=36_500)]]
"""Days by ``decision``, ``decision/<impact>``, a kind of memory or ``<kind>/<type>``; the closest name holds."""


class ProjectSettings(BaseModel):
    """What a project can be told."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    turn_policy: TurnPolicy = Field(TurnPolicy.AUTO, description="strict asks every write for an open turn's token")
    ack_token_minutes: int = Field(30, ge=1, le=24 * 60, description="a turn stays open so long after its last event")
    session_idle_hours: int = Field(12, ge=1, le=24 * 30, description="a session left open is ended after so long")
    capture_commits: bool = Field(True, description="record a commit that is seen in a tool's event")
    conflict_window_seconds: float = Field(
        5.0, ge=0, le=3600, description="two writes from one version within so long are both kept, as a conflict"
    )
    rank_by_use: bool = Field(True, description="what was fetched, cited or updated counts up to a tenth more")
    embedding_model: str = Field(
        "auto", min_length=1, max_length=300, description="what finds by meaning: auto, none, a folder, or a hub id"
    )
    review_policy: ReviewPolicy = Field(
        ReviewPolicy.OFF, description="which of what agents write waits for a person: off, sampled or all"
    )
    review_sample_percent: int = Field(10, ge=1, le=100, description="so many of a hundred texts are sampled")
    review_sources: Annotated[list[Source], BeforeValidator(_listed)] = Field(
        default_factory=list, max_length=50, description="doors and agents of which everything waits for a person"
    )
    review_below_confidence: float = Field(
        0.0, ge=0, le=1, description="knowledge that is less certain waits for a person"
    )
    packs_accepted_only: bool = Field(True, description="context packs leave out what waits for a person")
    review_after: ReviewAfter = Field(
        default_factory=dict, description="days after which what nobody looked at is to be affirmed, by kind"
    )
    retention_days: Days = Field(365, description="what was captured goes after so many days; never keeps it")
    purge_deleted_after_days: Days = Field(
        90, description="a memory that was deleted goes for good after so many days; never keeps it"
    )
    retention: list[RetentionRule] = Field(
        default_factory=list, max_length=MAX_RULES, description="rules that come before these two; the first decides"
    )
    secret_rules: list[SecretRule] = Field(
        default_factory=list, max_length=MAX_SECRET_RULES, description="what is a secret here besides the rule pack"
    )
    secret_allow: list[Allowed] = Field(
        default_factory=list, max_length=MAX_ALLOWED, description="exact texts and /patterns/ that are no secrets here"
    )
    ranking: Ranking = Field(default_factory=Ranking, description="the weight of each part of a query's ranking")


def project_settings() -> ProjectSettings:
    """Return the settings of the current store's project.

    Raises:
        Invalid: a value is not one that the setting takes; the message says where it stands.
    """
    own = {name: json.loads(value) for name, value in rows.fetch("SELECT name, value FROM sessions_app_setting")}
    return _merged(_from_environment(), _from_file(_modified(_config_path())), own)


def settings_decided_elsewhere() -> dict[str, str]:
    """Return the settings that the project itself cannot decide, each with what does."""
    named = {name: f"the environment ({PREFIX}{name.upper()})" for name in _from_environment()}
    known = set(ProjectSettings.model_fields)
    return (
        dict.fromkeys(known & set(_from_file(_modified(_config_path()))), f"{CONFIG_FILE} in the home folder") | named
    )


def check_settings(values: dict[str, Any]) -> ProjectSettings:
    """Return ``values`` as settings, the others and those that are None at their defaults.

    Raises:
        Invalid: a name is unknown or a value is not one that the setting takes.
    """
    unknown = sorted(set(values) - set(ProjectSettings.model_fields))
    if unknown:
        known = ", ".join(ProjectSettings.model_fields)
        raise Invalid(f"there is no setting {unknown[0]!r}; known are: {known}")
    return _merged({name: value for name, value in values.items() if value is not None})


def _merged(*sources: dict[str, Any]) -> ProjectSettings:
    values: dict[str, Any] = {}
    for source in reversed(sources):
        values |= source
    try:
        return ProjectSettings(**values)
    except ValidationError as error:
        raise Invalid(f"setting {explain(error)}") from error


def _from_environment() -> dict[str, Any]:
    named = {name: os.environ.get(PREFIX + name.upper()) for name in ProjectSettings.model_fields}
    return {name: _read(name, value) for name, value in named.items() if value is not None}


def _read(name: str, value: str) -> Any:
    """Return a setting of the environment; one that has parts is written as JSON."""
    if name not in _EXAMPLES:
        return value
    try:
        return json.loads(value)
    except json.JSONDecodeError as error:
        variable = f"{PREFIX}{name.upper()}"
        raise Invalid(f"setting {variable} is not JSON: {error.msg}; write {_EXAMPLES[name]}, say") from error


_EXAMPLES = {
    "ranking": '{"text": 2}',
    "retention": '[{"what": "captured", "after_days": 30}]',
    "review_after": '{"decision": 365}',
    "secret_rules": '[{"id": "badge", "pattern": "ACME-[0-9]{6}"}]',
    "secret_allow": '["a text", "/a pattern/"]',
}
"""Of the settings that have parts."""


def _config_path() -> Path:
    return env.home() / CONFIG_FILE


def _modified(path: Path) -> tuple[Path, int]:
    try:
        return path, path.stat().st_mtime_ns
    except FileNotFoundError:
        return path, 0


@lru_cache(maxsize=8)
def _from_file(version: tuple[Path, int]) -> dict[str, Any]:
    path, modified = version
    if not modified:
        return {}
    try:
        return tomllib.loads(path.read_text())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} is not valid TOML: {error}") from error
