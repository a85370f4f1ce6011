"""What is wrong with an input is said in one sentence that a caller can act on."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from django.test import SimpleTestCase
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from memoryhub.core.validation import explain


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


class ExplainingErrors(SimpleTestCase):
    def explained(self, **values: Any) -> str:
        with self.assertRaises(ValidationError) as caught:
            Input.model_validate(values)
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
        ):
            with self.subTest(values=values):
                self.assertEqual(self.explained(**values), sentence)

    def test_further_fields_are_named(self) -> None:
        self.assertEqual(
            self.explained(count=0, kind="c", even=1),
            "'count' must be greater than 0, not 0; wrong too: 'kind', 'even'",
        )

    def test_long_values_are_not_repeated(self) -> None:
        self.assertEqual(self.explained(title="y" * 1000), "'title' must have at most 5 characters")

    def test_a_whole_that_is_no_object(self) -> None:
        with self.assertRaises(ValidationError) as caught:
            Input.model_validate("text")
        self.assertEqual(explain(caught.exception), "the input must be an object, not 'text'")
