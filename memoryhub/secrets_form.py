"""The form of the page about secrets: a text to try, the project's own rules, and what is no secret there."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest

from sessions_app.schemas.secrets import MAX_TEXT
from sessions_app.settings import ProjectSettings

_CODE = {"spellcheck": "false", "class": "code", "autocomplete": "off"}


class TextForm(forms.Form):
    """What to try, and the allow-list."""

    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_TEXT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 8, **_CODE}),
        help_text="Nothing of it is kept. It is read with the rules below, saved or not.",
    )
    allow = forms.CharField(
        required=False,
        label="What is no secret here",
        widget=forms.Textarea(attrs={"rows": 4, **_CODE}),
        help_text="A line each: the exact text, or a pattern between slashes that matches all of it: /test_[a-z]+/. "
        "Private blocks are taken out all the same.",
    )

    def allowed(self) -> list[str]:
        """Return the lines of the allow-list."""
        return [line.strip() for line in self.cleaned_data["allow"].splitlines() if line.strip()]


class RuleForm(forms.Form):
    """One rule of the project's own; empty fields make none."""

    id = forms.CharField(required=False, label="Name", widget=forms.TextInput(attrs=_CODE))
    pattern = forms.CharField(required=False, strip=False, label="Pattern", widget=forms.TextInput(attrs=_CODE))
    type = forms.CharField(required=False, label="Type in the tag", widget=forms.TextInput(attrs=_CODE))
    keywords = forms.CharField(required=False, label="Keywords, by commas", widget=forms.TextInput(attrs=_CODE))
    description = forms.CharField(required=False, label="Description")

    def rule(self) -> dict[str, Any]:
        """Return what was typed as a rule, without what was left out; empty where nothing was."""
        typed: dict[str, Any] = {name: value for name, value in self.cleaned_data.items() if value}
        if "keywords" in typed:
            typed["keywords"] = [word.strip() for word in typed["keywords"].split(",") if word.strip()]
        return typed


RuleForms = forms.formset_factory(RuleForm, extra=1, max_num=100)


class SecretsForm:
    """All of the page's fields, filled with what the project says now."""

    def __init__(self, request: HttpRequest, settings: ProjectSettings) -> None:
        posted = request.POST or None
        shown = [{**each.model_dump(), "keywords": ", ".join(each.keywords)} for each in settings.secret_rules]
        self.fields = TextForm(posted, initial={"allow": "\n".join(settings.secret_allow)}, label_suffix="")
        self.rules = RuleForms(posted, initial=shown, prefix="rule", form_kwargs={"label_suffix": ""})
        self.problem = ""

    def is_valid(self) -> bool:
        """Say whether the fields can be read; the rules' own rules are the schema's."""
        return bool(self.fields.is_valid() and self.rules.is_valid())

    @property
    def text(self) -> str:
        """The text to try, with the line ends that it was typed with."""
        return str(self.fields.cleaned_data["text"]).replace("\r\n", "\n")

    def said(self) -> dict[str, Any]:
        """Return the rules and the allow-list as settings."""
        rules = [rule for rule in (form.rule() for form in self.rules) if rule]
        return {"secret_rules": rules, "secret_allow": self.fields.allowed()}
