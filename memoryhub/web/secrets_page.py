"""The pages about secrets: a text to try, the rules of the project, and the rule pack."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from pydantic import ValidationError

from memoryhub.config.current_settings import project_settings, settings_decided_elsewhere
from memoryhub.config.project_settings import ProjectSettings, setting_info
from memoryhub.core.admin.schema_form import SchemaForm, posted
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.catalogue import catalogue
from memoryhub.core.text import as_sentence
from memoryhub.core.validation import explain
from sessions_app.schemas import MAX_TEXT, FoundSecret, Sanitise, SettingsChange
from sessions_app.services.profile import change_settings, try_rules

_CODE = {"spellcheck": "false", "class": "code", "autocomplete": "off"}


class TextForm(SchemaForm[Any]):
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_TEXT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 8, **_CODE}),
        help_text="The text is not stored.",
    )

    def clean_text(self) -> str:
        return str(self.cleaned_data["text"]).replace("\r\n", "\n")


class ListsForm(SchemaForm[Any]):
    allow = forms.CharField(
        required=False,
        label="Allowlist",
        widget=forms.Textarea(attrs={"rows": 4, **_CODE}),
        help_text="Texts that are not secrets, one per line: an exact text, or a pattern between slashes that matches "
        "all of it, such as /test_[a-z]+/. Private blocks are always masked.",
    )
    personal = forms.MultipleChoiceField(
        required=False,
        label="Mask personal data",
        choices=list(setting_info("mask_personal").choices.items()),
        widget=forms.CheckboxSelectMultiple,
        help_text="These are stored unless you choose them here. A redaction masks what is stored already.",
    )

    def allowed(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["allow"].splitlines() if line.strip()]


class SecretRuleForm(SchemaForm[Any]):
    """A custom rule of the project; an empty form is ignored."""

    id = forms.CharField(required=False, label="Name", widget=forms.TextInput(attrs=_CODE))
    pattern = forms.CharField(required=False, strip=False, label="Pattern", widget=forms.TextInput(attrs=_CODE))
    type = forms.CharField(required=False, label="Secret type", widget=forms.TextInput(attrs=_CODE))
    keywords = forms.CharField(required=False, label="Keywords (comma-separated)", widget=forms.TextInput(attrs=_CODE))
    description = forms.CharField(required=False, label="Description")

    def rule(self) -> dict[str, Any]:
        typed: dict[str, Any] = {name: value for name, value in self.cleaned_data.items() if value}
        if "keywords" in typed:
            typed["keywords"] = [word.strip() for word in typed["keywords"].split(",") if word.strip()]
        return typed


SecretRuleForms = forms.formset_factory(SecretRuleForm, extra=1, max_num=100)


class RulesForm:
    """All fields of the project's rules, with the current rules as initial values."""

    def __init__(self, posted: QueryDict | None, settings: ProjectSettings) -> None:
        current = [{**rule.model_dump(), "keywords": ", ".join(rule.keywords)} for rule in settings.secret_rules]
        initial = {"allow": "\n".join(settings.secret_allow), "personal": settings.mask_personal}
        self.lists = ListsForm(posted, initial=initial)
        self.rules = SecretRuleForms(posted, initial=current, prefix="rule")

    def is_valid(self) -> bool:
        return bool(self.lists.is_valid() and self.rules.is_valid())

    def settings(self) -> dict[str, Any]:
        rules = (form.rule() for form in self.rules)
        return {
            "secret_rules": list(filter(None, rules)),
            "secret_allow": self.lists.allowed(),
            "mask_personal": self.lists.cleaned_data["personal"],
        }


_PARTS = {"try": "Try a text", "rules": "Rules of this project", "pack": "Rule pack"}
_CUSTOM = ("secret_rules", "secret_allow", "mask_personal")
_RULES_PER_PAGE = 40


@never_cache
def secrets_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    part = "try"
    if "q" in request.GET:
        part = "pack"
    part = request.GET.get("part", part)
    if "rule-TOTAL_FORMS" in request.POST:
        part = "rules"
    if part not in _PARTS:
        part = "try"
    page = {"try": _try_page, "rules": _rules_page, "pack": _pack}[part](request)
    if isinstance(page, HttpResponse):
        return page
    parts = [(name, label, name == part) for name, label in _PARTS.items()]
    return TemplateResponse(request, f"admin/secrets/{part}.html", {**context, "parts": parts, **page})


def _try_page(request: HttpRequest) -> dict[str, Any]:
    text = TextForm(request.POST or None)
    page = {"text": text, "rules": len(project_settings().secret_rules), "all_rules": len(catalogue())}
    if text.is_valid():
        page |= _try_rules(text.cleaned_data["text"], {})
    return page


def _rules_page(request: HttpRequest) -> dict[str, Any] | HttpResponse:
    data = posted(request)
    text = TextForm(data)
    form = RulesForm(data, project_settings())
    tried: dict[str, Any] = {}
    if data and form.is_valid() and text.is_valid():
        if data.get("do") != "save":
            tried = _try_rules(text.cleaned_data["text"], form.settings())
        elif problem := _save(request, form):
            tried = {"problem": problem}
        else:
            return redirect(reverse("admin:secrets", query={"part": "rules"}))
    elsewhere = settings_decided_elsewhere()
    sources = [elsewhere[name] for name in _CUSTOM if name in elsewhere]
    return {"text": text, "form": form, "elsewhere": sources, **tried}


def _save(request: HttpRequest, form: RulesForm) -> str:
    try:
        change_settings(command=SettingsChange(settings=form.settings()))
    except HubError as error:
        return f"Not saved. {as_sentence(error.message)}"
    messages.success(request, "The rules of this project were saved.")
    return ""


def _try_rules(text: str, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        result = try_rules(command=Sanitise(text=text, **settings))
    except ValidationError as error:
        return {"problem": as_sentence(explain(error))}
    except HubError as error:
        return {"problem": as_sentence(error.message)}
    return {"result": result, "pieces": list(_pieces(text, result.found))}


def _pieces(text: str, secrets: list[FoundSecret]) -> Iterator[tuple[str, FoundSecret | None]]:
    """Split the text at the secrets; a secret inside another one is skipped."""
    end = 0
    for secret in secrets:
        if secret.start >= end:
            yield text[end : secret.start], None
            yield text[secret.start : secret.end], secret
            end = secret.end
    yield text[end:], None


def _pack(request: HttpRequest) -> dict[str, Any]:
    words = request.GET.get("q", "").lower().split()
    rules = []
    for rule in catalogue().values():
        text = " ".join((rule.id, rule.type, rule.description, *rule.keywords, *rule.origins)).lower()
        if all(word in text for word in words):
            rules.append(rule)
    page = Paginator(rules, _RULES_PER_PAGE).get_page(request.GET.get("page"))
    return {"query": request.GET.get("q", ""), "page": page, "all_rules": len(catalogue())}
