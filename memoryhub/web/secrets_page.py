"""The page about secrets: a box to try a text in, the project's own rules, and the rule pack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from pydantic import ValidationError

from memoryhub.config.project_settings import ProjectSettings, project_settings, settings_decided_elsewhere
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.catalogue import RuleInfo, catalogue
from memoryhub.core.validation import explain
from sessions_app.schemas import SettingsChange
from sessions_app.schemas.work import MAX_TEXT, FoundSecret, Sanitise, Sanitised
from sessions_app.services.profile import change_settings, try_rules

_CODE = {"spellcheck": "false", "class": "code", "autocomplete": "off"}


class TextForm(forms.Form):
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
        rules = [rule for rule in (form.rule() for form in self.rules) if rule]
        return {"secret_rules": rules, "secret_allow": self.fields.allowed()}


_OWN = ("secret_rules", "secret_allow")
_A_PAGE = 40


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the text that was tried: as it is, or taken out."""

    text: str
    found: FoundSecret | None = None


@never_cache
def secrets_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the page; try a text, or save the project's own rules, and show it again."""
    form = SecretsForm(request, project_settings())
    tried = None
    if request.method == "POST" and form.is_valid():
        if request.POST.get("do") == "save":
            if _saved(request, form):
                return redirect("admin:secrets")
        else:
            tried = _tried(form)
    elsewhere = settings_decided_elsewhere()
    return TemplateResponse(
        request,
        "admin/secrets.html",
        {
            **context,
            "form": form,
            "tried": tried,
            "pieces": list(_pieces(form.text, tried.found)) if tried else [],
            "elsewhere": [elsewhere[name] for name in _OWN if name in elsewhere],
            **_pack(request),
        },
    )


def _saved(request: HttpRequest, form: SecretsForm) -> bool:
    try:
        change_settings(command=SettingsChange(settings=form.said()))
    except HubError as error:
        form.problem = _sentence(error.message)
        return False
    messages.success(request, "The rules of this project were saved.")
    return True


def _tried(form: SecretsForm) -> Sanitised | None:
    try:
        return try_rules(command=Sanitise(text=form.text, **form.said()))
    except ValidationError as error:
        form.problem = _sentence(explain(error))
    except HubError as error:
        form.problem = _sentence(error.message)
    return None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _pieces(text: str, found: list[FoundSecret]) -> Iterator[Piece]:
    """Cut the text where something is taken out; what lies in what goes anyway is not shown again."""
    done = 0
    for each in found:
        if each.start >= done:
            yield Piece(text[done : each.start])
            yield Piece(text[each.start : each.end], each)
            done = each.end
    yield Piece(text[done:])


def _pack(request: HttpRequest) -> dict[str, Any]:
    """Return the rules of the pack that hold the words that are looked for, a page of them."""
    words = request.GET.get("q", "").lower().split()
    rules = [rule for rule in catalogue().values() if all(word in _searched(rule) for word in words)]
    page = Paginator(rules, _A_PAGE).get_page(request.GET.get("page"))
    return {"query": request.GET.get("q", ""), "page": page, "all_rules": len(catalogue())}


def _searched(rule: RuleInfo) -> str:
    return " ".join((rule.id, rule.type, rule.description, *rule.keywords, *rule.origins)).lower()
