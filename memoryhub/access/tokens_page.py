"""The page of agents' tokens: which there are, when each was used last, a new one, and revoking."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from memoryhub.access import tokens
from memoryhub.access.history import history_of
from memoryhub.access.pages import CommandForm, hub_page, sentence, told
from memoryhub.core import clock
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import Act
from memoryhub.core.stores import list_projects
from memoryhub.models import Subject

VERB_CHOICES = [
    ("read", "Read"),
    ("write", "Read and write: memories, decisions, sessions, turns"),
    ("admin", "Everything: also erase, settings and policies"),
]
_HUB, _SOME = "hub", "some"


class TokenForm(CommandForm):
    """A new token."""

    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="Who uses it, such as ci. Events say token:ci, so a name is given once.",
    )
    verbs = forms.ChoiceField(choices=VERB_CHOICES, widget=forms.RadioSelect, initial="read", label="What it may do")
    reach = forms.ChoiceField(
        choices=[(_SOME, "In the projects chosen here"), (_HUB, "In the whole hub, and in projects yet to come")],
        widget=forms.RadioSelect,
        initial=_SOME,
        label="Where",
    )
    projects = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label="Projects")
    days = forms.CharField(
        required=False,
        initial="90",
        label="Days",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off", "size": "6"}),
        help_text="How long it counts, 1 to 3,650.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["projects"].choices = [(each, each) for each in list_projects()]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        """Ask for a project where none was chosen."""
        typed: dict[str, Any] = super().clean() or {}
        if typed.get("reach") == _SOME and not typed.get("projects"):
            self.add_error("projects", "Choose at least one, or the whole hub above.")
        return typed

    def values(self) -> dict[str, Any]:
        """Return what was typed; the whole hub is no list of projects."""
        typed = dict(self.cleaned_data)
        chosen = typed["projects"] if typed.pop("reach") == _SOME else None
        return {**typed, "projects": chosen, "verbs": [typed["verbs"]]}


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def show_tokens(request: HttpRequest) -> HttpResponse:
    """Show all tokens, or make one and show its text."""
    form = TokenForm(request.POST if request.method == "POST" else None)
    command = form.command(tokens.TokenCreate) if form.is_bound else None
    if command is None:
        return _page(request, form)
    try:
        token, text = tokens.create_token(command=command, by=request.user.get_username())
    except HubError as error:
        form.add_error("name", sentence(error.message))
        return _page(request, form)
    return _page(request, TokenForm(), made=token, text=text)


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def revoke_token(request: HttpRequest, name: str) -> HttpResponse:
    """Ask whether a token is to count no more, or see to it."""
    token = tokens.find_token(name)
    if request.method != "POST":
        return render(request, "memoryhub/revoke_token.html", {"token": token})
    by = request.user.get_username()
    told(request, lambda: tokens.revoke_token(name=name, by=by), f"The token {name} counts no more.")
    return redirect("tokens")


def _page(request: HttpRequest, form: TokenForm, **given: Any) -> HttpResponse:
    now = clock.now()
    found = tokens.list_tokens()
    good = [token for token in found if tokens.is_good(token, now)]
    history = history_of(Subject.TOKEN, before=request.GET.get("before", ""))
    context = {"history": history, "good": good, "ended": found[len(good) :], "form": form, **given}
    return render(request, "memoryhub/tokens.html", context)
