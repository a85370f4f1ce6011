"""The page about secrets: a text to test, the project's custom rules, and the rule pack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, get_args

from django import forms
from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from pydantic import ValidationError

from memoryhub.config.project_settings import ProjectSettings, project_settings, settings_decided_elsewhere
from memoryhub.config.secret_rules import PersonalType
from memoryhub.core.errors import HubError
from memoryhub.core.secrets.catalogue import RuleInfo, catalogue
from memoryhub.core.validation import explain
from sessions_app.schemas import SettingsChange
from sessions_app.schemas.work import MAX_TEXT, FoundSecret, Sanitise, Sanitised
from sessions_app.services.profile import change_settings, try_rules

_CODE = {"spellcheck": "false", "class": "code", "autocomplete": "off"}


_PERSONAL = {
    "email": "E-mail addresses",
    "phone": "Phone numbers",
    "card": "Card numbers",
    "iban": "Bank account numbers (IBAN)",
    "national_id": "National ids",
}


class TextForm(forms.Form):
    text = forms.CharField(
        required=False,
        strip=False,
        max_length=MAX_TEXT,
        label="Text",
        widget=forms.Textarea(attrs={"rows": 8, **_CODE}),
        help_text="The text is not stored. It is tested with the rules below, saved or not.",
    )
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
        choices=[(name, _PERSONAL[name]) for name in get_args(PersonalType)],
        widget=forms.CheckboxSelectMultiple,
        help_text="These are stored unless you choose them here. A redaction masks what is stored already.",
    )

    def allowed(self) -> list[str]:
        return [line.strip() for line in self.cleaned_data["allow"].splitlines() if line.strip()]


class RuleForm(forms.Form):
    """A custom rule of the project; an empty form is ignored."""

    id = forms.CharField(required=False, label="Name", widget=forms.TextInput(attrs=_CODE))
    pattern = forms.CharField(required=False, strip=False, label="Pattern", widget=forms.TextInput(attrs=_CODE))
    type = forms.CharField(required=False, label="Secret type", widget=forms.TextInput(attrs=_CODE))
    keywords = forms.CharField(required=False, label="Keywords (comma-separated)", widget=forms.TextInput(attrs=_CODE))
    description = forms.CharField(required=False, label="Description")

    def rule(self) -> dict[str, Any]:
        """Return the fields that are not empty."""
        typed: dict[str, Any] = {name: value for name, value in self.cleaned_data.items() if value}
        if "keywords" in typed:
            typed["keywords"] = [word.strip() for word in typed["keywords"].split(",") if word.strip()]
        return typed


RuleForms = forms.formset_factory(RuleForm, extra=1, max_num=100)


class SecretsForm:
    """All fields of the page, with the project's current rules as initial values."""

    def __init__(self, request: HttpRequest, settings: ProjectSettings) -> None:
        posted = request.POST or None
        current = [{**rule.model_dump(), "keywords": ", ".join(rule.keywords)} for rule in settings.secret_rules]
        self.fields = TextForm(
            posted,
            initial={"allow": "\n".join(settings.secret_allow), "personal": settings.mask_personal},
            label_suffix="",
        )
        self.rules = RuleForms(posted, initial=current, prefix="rule", form_kwargs={"label_suffix": ""})
        self.problem = ""

    def is_valid(self) -> bool:
        return bool(self.fields.is_valid() and self.rules.is_valid())

    @property
    def text(self) -> str:
        return str(self.fields.cleaned_data["text"]).replace("\r\n", "\n")

    def settings(self) -> dict[str, Any]:
        rules = [rule for rule in (form.rule() for form in self.rules) if rule]
        return {
            "secret_rules": rules,
            "secret_allow": self.fields.allowed(),
            "mask_personal": self.fields.cleaned_data["personal"],
        }


_CUSTOM = ("secret_rules", "secret_allow", "mask_personal")
_RULES_PER_PAGE = 40


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the tested text, with the secret found in it."""

    text: str
    found: FoundSecret | None = None


@never_cache
def secrets_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    form = SecretsForm(request, project_settings())
    result = None
    if request.method == "POST" and form.is_valid():
        if request.POST.get("do") == "save":
            if _save(request, form):
                return redirect("admin:secrets")
        else:
            result = _test(form)
    elsewhere = settings_decided_elsewhere()
    return TemplateResponse(
        request,
        "admin/secrets.html",
        {
            **context,
            "form": form,
            "result": result,
            "pieces": list(_pieces(form.text, result.found)) if result else [],
            "elsewhere": [elsewhere[name] for name in _CUSTOM if name in elsewhere],
            **_pack(request),
        },
    )


def _save(request: HttpRequest, form: SecretsForm) -> bool:
    try:
        change_settings(command=SettingsChange(settings=form.settings()))
    except HubError as error:
        form.problem = _sentence(error.message)
        return False
    messages.success(request, "The rules of this project were saved.")
    return True


def _test(form: SecretsForm) -> Sanitised | None:
    try:
        return try_rules(command=Sanitise(text=form.text, **form.settings()))
    except ValidationError as error:
        form.problem = _sentence(explain(error))
    except HubError as error:
        form.problem = _sentence(error.message)
    return None


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _pieces(text: str, found: list[FoundSecret]) -> Iterator[Piece]:
    """Split the text at the secrets; a secret inside another one is skipped."""
    done = 0
    for secret in found:
        if secret.start >= done:
            yield Piece(text[done : secret.start])
            yield Piece(text[secret.start : secret.end], secret)
            done = secret.end
    yield Piece(text[done:])


def _pack(request: HttpRequest) -> dict[str, Any]:
    """Return a page of the pack's rules that contain all searched words."""
    words = request.GET.get("q", "").lower().split()
    rules = [rule for rule in catalogue().values() if all(word in _searched(rule) for word in words)]
    page = Paginator(rules, _RULES_PER_PAGE).get_page(request.GET.get("page"))
    return {"query": request.GET.get("q", ""), "page": page, "all_rules": len(catalogue())}


def _searched(rule: RuleInfo) -> str:
    return " ".join((rule.id, rule.type, rule.description, *rule.keywords, *rule.origins)).lower()
