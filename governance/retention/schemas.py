"""What callers of retention send and get."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Line, Moment


class RetentionPlanRequest(Command):
    """Ask what retention would take now."""

    now: Moment | None = Field(None, description="as if it were this time; default: the present")


class RetentionRunRequest(Command):
    """Take what the plan of this digest says, and nothing else."""

    digest: str = Field(min_length=64, max_length=64, pattern="^[0-9a-f]{64}$", description="of the plan that you saw")
    now: Moment | None = Field(None, description="the time that the plan was made for, where it named one")


class HoldPlace(Command):
    """Keep something until further notice, whatever its age."""

    stream_id: Line = Field(
        min_length=1,
        max_length=200,
        description="memory:12, decision:7, session:<name>, any other stream; * for the whole store",
    )
    reason: str = Field(min_length=1, max_length=1_000, description="why")
    idempotency_key: IdempotencyKey = None


class HoldLift(Command):
    """End a hold."""

    id: EntityId
    reason: str = Field("", max_length=1_000, description="why it is needed no longer")


class HoldView(BaseModel):
    """A hold."""

    id: int
    stream_id: str
    reason: str
    placed_by: str
    placed_at: datetime
    lifted_by: str = ""
    lifted_at: datetime | None = None
    lift_reason: str = ""


class HoldList(BaseModel):
    """The holds that are in force, the newest first."""

    results: list[HoldView]


class Sample(BaseModel):
    """One of many."""

    id: int
    at: datetime = Field(description="from when its age counts")
    text: str = Field("", description="its first words, while they are there")
    by: str = Field("", description="what keeps it")


class Share(BaseModel):
    """Some of what is past its age."""

    what: str = Field(description="captured, pack, deleted, memory, session, decision, iteration or commit")
    sub: str = Field("", description="its type of event, or its kind")
    things: int = Field(description="how many")
    events: int = Field(description="of the log, that they consist of")
    bytes: int = Field(description="of payloads")
    oldest: datetime = Field(description="from when the age of the oldest counts")
    newest: datetime = Field(description="from when that of the newest does")
    samples: list[Sample] = Field(description="a few of them")


class Going(Share):
    """What goes by one rule."""

    rule: str = Field(description="its number, or the setting that it is")
    says: str = Field(description="the rule")
    warning: str = Field("", description="that it goes only because a rule names it")


class Kept(Share):
    """What is past its age and stays all the same."""

    keeper: str = Field(description="what keeps it: hold, relation, …")
    says: str = Field(description="what keeps it, as a sentence")


class Report(BaseModel):
    """What goes, or went, and what stays."""

    going: list[Going] = Field(description="by the rule that takes it")
    kept: list[Kept] = Field(description="by what keeps it")
    things: int = Field(description="how many go")
    events: int = Field(description="how many events of the log lose their texts")
    bytes: int = Field(description="of payloads that go")
    left: int = Field(0, description="things that came to be kept while it ran")


class Plan(Report):
    """What would go now."""

    cutoff: datetime = Field(description="from when ages count")
    digest: str = Field(description="of exactly what would go")
    unfinished: int | None = Field(None, description="the run that was cut off, and that this would bring to its end")
    rules: list[str] = Field(description="in order; the first that fits decides")


class RunView(BaseModel):
    """A run of retention."""

    id: int
    cutoff: datetime = Field(description="from when ages counted")
    digest: str = Field(description="of the plan that it took")
    events: int = Field(description="how many events of the log lost their texts")
    bytes: int = Field(description="of payloads that went")
    actor: str
    source: str
    began_at: datetime
    ran_at: datetime | None = Field(description="null while it is not at its end")
    report: Report


class RunList(BaseModel):
    """The latest runs, the newest first."""

    results: list[RunView]
