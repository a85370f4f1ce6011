"""A form from a schema: errors of the schema at its fields."""

from __future__ import annotations

from typing import Any

from django import forms
from django.test import SimpleTestCase
from pydantic import Field

from memoryhub.core.admin.schema_form import SchemaForm
from memoryhub.core.schemas import Command


class Rating(Command):
    stars: int = Field(ge=0, le=5)


class RatingForm(SchemaForm[Rating]):
    schema = Rating
    stars = forms.IntegerField()

    def values(self) -> dict[str, Any]:
        return Rating(stars=self.cleaned_data["stars"]).model_dump()


class SchemaFormTests(SimpleTestCase):
    def test_an_error_is_at_its_field_also_if_the_values_cannot_be_read(self) -> None:
        form = RatingForm({"stars": "9"})
        self.assertIsNone(form.command())
        self.assertIn("stars", form.errors)
        self.assertEqual(RatingForm({"stars": "4"}).command(), Rating(stars=4))
