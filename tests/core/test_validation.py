from __future__ import annotations

import os
import re
import warnings
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, get_args
from unittest import mock
from zoneinfo import ZoneInfoNotFoundError

from django.test import SimpleTestCase
from django.utils import timezone
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_core.core_schema import ErrorType

from governance.audit import AuditPeriod
from governance.rollback.schemas import Selection
from memories.schemas import MemoryGet, MemorySearch
from memories.schemas.links import TagAttach
from memoryhub.core import clock
from memoryhub.core.schemas import STORED, Command, EntityId, Line, Tag
from memoryhub.core.tools import all_tools
from memoryhub.core.validation import command_from, explain, explain_faults
from memoryhub.transfer.folder import ExportSelection as FolderSelection
from sessions_app.audit import EventWindow
from sessions_app.schemas import CommitRecord

# A filter of each door's commands that takes a time, and what else it needs
DATED: dict[type[Any], dict[str, Any]] = {
    MemorySearch: {"query": "x"},
    EventWindow: {},
    AuditPeriod: {},
    Selection: {},
    FolderSelection: {},
}

# Errors that only a caller in Python can make.
OF_PYTHON = set(
    "no_such_attribute needs_python_object get_attribute_error dataclass_exact_type default_factory_not_called "
    "iteration_error missing_sentinel_error ellipsis_error is_instance_of is_subclass_of callable_type arguments_type "
    "unexpected_positional_argument missing_positional_only_argument missing_keyword_only_argument "
    "multiple_argument_values missing_argument unexpected_keyword_argument frozen_field frozen_instance "
    "recursion_loop".split()
)
# Errors of types that no field has: these have pydantic's words.
OF_OTHER_TYPES = re.compile(
    "bytes|complex|counter|dataclass|date_|decimal|deque|fraction|frozen|iterable|json_type|mapping|"
    "multiple_of|named|ordered|set_|string_not|time_|timezone|url|uuid|.*_(?:past|future)$"
)
OTHER_TYPES = set("arguments bytes complex dataclass date decimal frozenset json set time timedelta url uuid".split())
CONTEXT = {
    **dict.fromkeys("max_length min_length gt ge lt le".split(), 3),
    **dict.fromkeys("expected expected_tags discriminator pattern error".split(), "'a'"),
}


class TimeTests(SimpleTestCase):
    def test_a_time_without_a_zone_is_of_the_viewers_zone(self) -> None:
        times = {"2026-11-20": "19T15:00", "2026-11-20T08:00": "19T23:00", "2026-11-20T08:00Z": "20T08:00"}
        with timezone.override("Asia/Tokyo"):
            for schema, fields in DATED.items():
                for text, utc in times.items():
                    with self.subTest(schema=schema.__name__, text=text):
                        moment = command_from(schema, {**fields, "since": text}).since
                        self.assertEqual(clock.to_text(moment), f"2026-11-{utc}:00.000Z")
            past = command_from(MemoryGet, {"ids": [1], "as_of": "2026-11-20"}).as_of
            self.assertEqual(past, datetime(2026, 11, 19, 15, tzinfo=UTC))

    def test_the_ends_of_the_calendar_are_shown_in_utc(self) -> None:
        ends = {"Asia/Tokyo": "9999-12-31T20:30:00.000Z", "America/New_York": "0001-01-01T00:30:00.000Z"}
        for zone, time in ends.items():
            with timezone.override(zone):
                self.assertEqual(clock.minute(time), time[:16])

    def test_a_machine_without_a_known_zone_is_in_utc(self) -> None:
        zones = {
            "Asia/Tokyo": "Asia/Tokyo",
            ":Europe/Berlin": "Europe/Berlin",
            "Etc/GMT+5": "Etc/GMT+5",
            "No/Where": "UTC",
        }
        for name, zone in zones.items():
            forgotten = mock.patch("tzlocal.unix._cache_tz_name", None)
            with self.subTest(name), mock.patch.dict(os.environ, TZ=name), forgotten:
                with warnings.catch_warnings(record=True) as seen:
                    self.assertEqual(clock.machine_zone(), zone)
                self.assertEqual(seen, [])
        contradiction = mock.patch("tzlocal.get_localzone_name", side_effect=ZoneInfoNotFoundError("two zones"))
        with contradiction:
            self.assertEqual(clock.machine_zone(), "UTC")

    def test_a_time_of_the_log_without_a_zone_is_in_utc(self) -> None:
        commit = {"sha": "a" * 40, "committed_at": "2026-11-20T08:00"}
        with timezone.override("Asia/Tokyo"):
            stored = CommitRecord.model_validate(commit, context=STORED)
        self.assertEqual(clock.to_text(stored.committed_at), "2026-11-20T08:00:00.000Z")

    def test_a_day_is_shown_in_the_viewers_zone_and_one_without_a_time_as_it_is(self) -> None:
        for zone, evening, alone in (
            ("Asia/Tokyo", "2026-11-21", "2026-11-20"),
            ("America/New_York", "2026-11-20", "2026-11-20"),
        ):
            with timezone.override(zone):
                self.assertEqual(clock.day("2026-11-20T22:30:00.000Z"), evening)
                self.assertEqual(clock.day(datetime(2026, 11, 20, tzinfo=UTC)), alone)


class Size(StrEnum):
    SMALL = "small"
    LARGE = "large"
    HUGE = "huge"


class Inner(BaseModel):
    size: float


class Input(BaseModel):
    model_config = ConfigDict(extra="forbid")

    title: Annotated[str, Field(min_length=1, max_length=5)] = "x"
    count: Annotated[int, Field(gt=0, le=10)] = 1
    kind: Literal["a", "b"] = "a"
    size: Literal[Size.SMALL, Size.LARGE] = Size.SMALL
    tags: Annotated[list[str], Field(max_length=2)] = []
    code: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    at: datetime | None = None
    compact: bool = False
    parts: list[Inner] = []
    named: Annotated[dict[str, int], Field(max_length=1)] = {}
    tag: Tag = "a"
    either: list[EntityId | Tag] = []
    line: Line = ""
    date: int | None = None
    even: int = 0

    @field_validator("even")
    @classmethod
    def _is_even(cls, value: int) -> int:
        if value % 2:
            raise ValueError("take an even number")
        return value

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.size is Size.LARGE and self.count == 1:
            raise ValueError("one cannot be large; give a count above 1")
        return self


def _field_types(schema: Any) -> set[str]:
    if isinstance(schema, list | tuple):
        return set().union(*map(_field_types, schema))
    if not isinstance(schema, dict):
        return set()
    types = {schema["type"]} if isinstance(schema.get("type"), str) else set()
    return types.union(*(_field_types(part) for name, part in schema.items() if name != "metadata"))


class ExplainingErrors(SimpleTestCase):
    def explained(self, values: Any, model: type[BaseModel] = Input) -> str:
        with self.assertRaises(ValidationError) as caught:
            model.model_validate(values)
        return explain(caught.exception)

    def test_each_kind_of_fault_names_the_field_and_what_is_accepted(self) -> None:
        for values, sentence in (
            ({"title": "longer"}, "'title' must have at most 5 characters, not 'longer'"),
            ({"title": ""}, "'title' must not be empty"),
            ({"title": None}, "'title' must be a text"),
            ({"count": 0}, "'count' must be greater than 0, not 0"),
            ({"count": 11}, "'count' must be at most 10, not 11"),
            ({"count": 1.5}, "'count' must be a whole number, not 1.5"),
            ({"kind": "c"}, "'kind' must be one of 'a' or 'b', not 'c'"),
            ({"size": "huge"}, "'size' must be one of 'small' or 'large', not 'huge'"),
            ({"size": "large"}, "one cannot be large; give a count above 1"),
            ({"tags": "a"}, "'tags' must be a list, not 'a'"),
            ({"tags": ["a", "b", "c"]}, "'tags' must have at most 2 entries"),
            ({"code": "A1"}, "'code' must match ^[a-z]+$, not 'A1'"),
            ({"at": "yesterday"}, "'at' must be an ISO 8601 time such as 2026-11-20T08:30:00Z, not 'yesterday'"),
            ({"compact": "maybe"}, "'compact' must be true or false, not 'maybe'"),
            ({"parts": [{"size": 1}, {}]}, "'parts[1].size' is required"),
            ({"parts": [5]}, "'parts[0]' must be an object, not 5"),
            ({"even": 3}, "'even' is not valid: take an even number"),
            ({"colour": "red"}, "'colour' is not known; leave it out"),
            ({"title": ["a"] * 3}, "'title' must be a text"),
            ({"tags": ["a"] * 3}, "'tags' must have at most 2 entries"),
            ({"named": {"a": 1, "b": 2}}, "'named' must have at most 1 entry"),
            ({"named": {"a": "x"}}, "'named.a' must be a whole number, not 'x'"),
            ({"tag": "x" * 65}, "'tag' must have at most 64 characters"),
            ({"tag": " "}, "'tag' must not be empty, not ' '"),
            ({"either": ["x" * 65]}, "'either[0]' must have at most 64 characters"),
            ({"either": [0]}, "'either[0]' must be at least 1, not 0"),
            ({"either": [{}]}, "'either[0]' must be a whole number or a text"),
            ({"line": "a\u2028b"}, r"'line' must be one line, without a line break, not 'a\u2028b'"),
            ({"date": "x"}, "'date' must be a whole number, not 'x'"),
            ({"count": "9" * 5_000}, "'count' must be a whole number of at most 4,300 digits"),
        ):
            with self.subTest(values=values):
                self.assertEqual(self.explained(values), sentence)

    def test_every_type_of_error_that_an_input_can_raise_has_a_sentence_of_its_own(self) -> None:
        for kind in sorted(set(get_args(ErrorType)) - OF_PYTHON):
            if OF_OTHER_TYPES.match(kind):
                continue
            with self.subTest(kind=kind):
                fault = {"type": kind, "loc": ("field",), "input": [1], "msg": "Raw words", "ctx": CONTEXT}
                self.assertRegex(explain_faults([fault]), r"^'field' (must|is|cannot) (?!not valid: raw)")

    def test_no_command_has_a_field_of_another_type(self) -> None:
        for schema in [tool.input for tool in all_tools()] + Command.__subclasses__():
            with self.subTest(schema=schema.__name__):
                self.assertEqual(_field_types(schema.__pydantic_core_schema__) & OTHER_TYPES, set())

    def test_other_errors_have_the_words_of_pydantic(self) -> None:
        fault = {"type": "bytes_too_long", "loc": ("field",), "input": b"abc", "msg": "Data should be shorter"}
        self.assertEqual(explain_faults([fault]), "'field' is not valid: data should be shorter")

    def test_a_choice_of_a_union_is_not_confused_with_a_field_of_that_name(self) -> None:
        faults = [
            {"type": "int_type", "loc": ("date",), "input": "x"},
            {"type": "missing", "loc": ("time",), "input": {}},
        ]
        self.assertEqual(explain_faults(faults), "'date' must be a whole number, not 'x'; also invalid: 'time'")

    def test_a_union_is_named_by_its_field_and_explained_by_the_choice_that_came_nearest(self) -> None:
        for tag, sentence in (
            ("", "'tags[0]' must not be empty"),
            (0, "'tags[0]' must be at least 1, not 0"),
            ([], "'tags[0]' must be a whole number or a text"),
        ):
            with self.subTest(tag=tag):
                self.assertEqual(self.explained({"id": "1", "tags": [tag]}, TagAttach), sentence)

    def test_long_values_are_not_repeated_and_an_input_is_an_object(self) -> None:
        self.assertEqual(self.explained({"title": "y" * 1000}), "'title' must have at most 5 characters")
        self.assertEqual(self.explained("text"), "the input must be an object, not 'text'")

    def test_further_fields_are_named(self) -> None:
        sentence = "'count' must be greater than 0, not 0; also invalid: 'kind', 'even'"
        self.assertEqual(self.explained({"count": 0, "kind": "c", "even": 1}), sentence)
