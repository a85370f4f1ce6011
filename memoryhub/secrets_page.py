"""The page about secrets: a box to try a text in, the project's own rules, and the rule pack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.views.decorators.cache import never_cache
from pydantic import ValidationError

from memoryhub.core.errors import HubError
from memoryhub.core.secrets.catalogue import RuleInfo, catalogue
from memoryhub.core.validation import explain
from memoryhub.secrets_form import SecretsForm
from sessions_app.schemas import SettingsChange
from sessions_app.schemas.secrets import FoundSecret, Sanitise, Sanitised
from sessions_app.services.secrets import try_rules
from sessions_app.services.settings import change_settings
from sessions_app.settings import project_settings, settings_decided_elsewhere

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
