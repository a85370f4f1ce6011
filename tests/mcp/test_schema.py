from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from django.test import SimpleTestCase
from pydantic import BaseModel, Field

from memoryhub.core.schemas import UNLISTED, explained_here, self_evident
from memoryhub.mcp.schema import input_schema


class Kind(StrEnum):
    ONE = "one"
    TWO = "two"


class Part(BaseModel):
    """A part."""

    name: str = Field(pattern=r"\S")
    kind: Kind | None = None


class Whole(BaseModel):
    title: Annotated[str, Field(min_length=1, max_length=200, description="What it says.")]
    kind: Kind = Kind.ONE
    count: Annotated[int, Field(ge=1, le=100, json_schema_extra=self_evident, description="How many.")] = 10
    limit: int = Field(10, ge=1, le=100, description="maximum number of results")
    scope: Kind = Kind.ONE
    max_tokens: int | None = None
    key: Annotated[str | None, Field(json_schema_extra={UNLISTED: True})] = None
    parts: list[Part] = Field(default_factory=list, max_length=9)
    id: int | None = Field(None, le=2**53)
    mode: Literal["a", "b"] | None = None
    ids: int | list[int] | None = None
    compact: bool = False
    mild: bool = False
    attributes: dict[str, Any] | None = None


class Differs(BaseModel):
    scope: Annotated[Kind, Field(json_schema_extra=explained_here)] = Kind.ONE
    max_tokens: int = 1_500


class SlimSchemas(SimpleTestCase):
    def setUp(self) -> None:
        self.schema = input_schema(Whole)
        self.properties = self.schema["properties"]

    def test_only_what_is_required_is_required(self) -> None:
        self.assertEqual(self.schema["required"], ["title"])
        self.assertEqual(self.schema["type"], "object")

    def test_descriptions_and_useful_defaults_are_listed(self) -> None:
        self.assertEqual(self.properties["title"], {"type": "string", "description": "What it says."})
        self.assertEqual(self.properties["count"], {"type": "integer", "default": 10})

    def test_an_argument_can_be_accepted_without_being_listed(self) -> None:
        self.assertNotIn("key", self.properties)

    def test_null_and_empty_defaults_are_left_out(self) -> None:
        self.assertEqual(self.properties["mode"], {"enum": ["a", "b"]})
        self.assertEqual(self.properties["mild"], {"type": "boolean"})
        self.assertEqual(self.properties["id"], {"type": "integer"})
        self.assertEqual(set(self.properties["parts"]), {"type", "items"})
        self.assertEqual(self.properties["attributes"], {"type": "object"})
        self.assertEqual(
            self.properties["ids"],
            {"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
        )

    def test_references_are_resolved_in_place(self) -> None:
        self.assertEqual(self.properties["kind"], {"enum": ["one", "two"], "default": "one"})
        items = self.properties["parts"]["items"]
        self.assertEqual(set(items), {"type", "properties", "required"})
        self.assertEqual(items["properties"], {"name": {"type": "string"}, "kind": {"enum": ["one", "two"]}})
        self.assertNotIn("$", str(self.schema))

    def test_what_the_instructions_explain_is_listed_by_name_and_type_or_not_at_all(self) -> None:
        self.assertEqual(self.properties["limit"], {"type": "integer"})
        self.assertEqual(self.properties["scope"], {"type": "string"})
        for name in ("format", "compact", "max_tokens"):
            self.assertNotIn(name, self.properties)

    def test_an_argument_that_differs_from_the_instructions_is_listed_in_full(self) -> None:
        properties = input_schema(Differs)["properties"]
        self.assertEqual(properties["scope"], {"enum": ["one", "two"], "default": "one"})
        self.assertEqual(properties["max_tokens"], {"type": "integer", "default": 1500})
