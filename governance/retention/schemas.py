"""Input and output of retention."""

from __future__ import annotations

from datetime import datetime

from pydantic import BaseModel, Field

from memoryhub.core.schemas import Command, EntityId, IdempotencyKey, Line, Moment


class RetentionPlanRequest(Command):
    """Preview what retention would delete now."""

    now: Moment | None = Field(None, description="plan for this time; default: now")


class RetentionRunRequest(Command):
    """Delete what a plan lists, if the plan is still current."""

    digest: str = Field(min_length=64, max_length=64, pattern="^[0-9a-f]{64}$", description="digest of the plan")
    now: Moment | None = Field(None, description="the plan's time, if it was given one")


class HoldPlace(Command):
    """Exempt something from retention until the hold is lifted."""

    stream_id: Line = Field(
        min_length=1,
        max_length=200,
        description="memory:12, decision:7, session:<name>, any other stream; * for the whole store",
    )
    reason: str = Field(min_length=1, max_length=1_000, description="reason of the hold")
    idempotency_key: IdempotencyKey = None


class HoldLift(Command):
    """End a hold."""

    id: EntityId
    reason: str = Field("", max_length=1_000, description="why it is lifted")


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
    """Active holds, newest first."""

    results: list[HoldView]


class Sample(BaseModel):
    """An example of what a plan lists."""

    id: int
    at: datetime = Field(description="its age is counted from this time")
    text: str = Field("", description="first words; empty after deletion")
    by: str = Field("", description="what protects it")


class Share(BaseModel):
    """A group of expired items."""

    what: str = Field(description="captured, pack, deleted, memory, session, decision, iteration or commit")
    sub: str = Field("", description="event type, or kind")
    things: int = Field(description="number of items")
    events: int = Field(description="number of their events")
    bytes: int = Field(description="size of their payloads")
    oldest: datetime = Field(description="age of the oldest is counted from this time")
    newest: datetime = Field(description="age of the newest is counted from this time")
    samples: list[Sample] = Field(description="a few examples")


class Going(Share):
    """Items that one rule deletes."""

    rule: str = Field(description="number of the rule, or name of the setting")
    says: str = Field(description="the rule as a sentence")
    warning: str = Field("", description="set if a rule deletes items that are kept by default")


class Kept(Share):
    """Expired items that are kept."""

    keeper: str = Field(description="reason: hold, relation, …")
    says: str = Field(description="the reason as a sentence")


class Report(BaseModel):
    """What a run deletes and keeps, or did."""

    going: list[Going] = Field(description="deleted items, by rule")
    kept: list[Kept] = Field(description="expired items that are kept, by reason")
    things: int = Field(description="number of deleted items")
    events: int = Field(description="number of events whose payloads are deleted")
    bytes: int = Field(description="size of the deleted payloads")
    left: int = Field(0, description="items that became protected during the run")


class Plan(Report):
    """Preview of a retention run."""

    cutoff: datetime = Field(description="ages are counted up to this time")
    digest: str = Field(description="digest of exactly these items; a run needs it")
    unfinished: int | None = Field(None, description="an interrupted run that this plan would finish")
    rules: list[str] = Field(description="rules in order; the first match decides")


class RunView(BaseModel):
    """A run of retention."""

    id: int
    cutoff: datetime = Field(description="ages were counted up to this time")
    digest: str = Field(description="digest of its plan")
    events: int = Field(description="number of events whose payloads were deleted")
    bytes: int = Field(description="size of the deleted payloads")
    actor: str
    source: str
    began_at: datetime
    ran_at: datetime | None = Field(description="null until it has finished")
    report: Report


class RunList(BaseModel):
    """Latest runs, newest first."""

    results: list[RunView]
