"""The page of the hub's people: who there is, with which role, and a link for whom it is time to come in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from memoryhub.core import clock
from memoryhub.core.errors import Conflict, HubError
from memoryhub.core.permissions import ROLES, Act
from memoryhub.core.stores.store import list_projects
from memoryhub.models import Subject
from memoryhub.registry import people, tokens
from memoryhub.registry.access_history import history_of
from memoryhub.web import signin
from memoryhub.web.hub_pages import CommandForm, apply_change, hub_page, sentence

ROLE_CHOICES = [
    ("viewer", "Viewer: sees every page, changes nothing"),
    ("reviewer", "Reviewer: also writes, reviews, settles, tags, and deletes what can be restored"),
    ("owner", "Owner: everything, also erasing, policies, people and tokens"),
]


class PersonForm(CommandForm):
    """A new person."""

    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="1 to 64 of a-z, 0-9, '.', '_', '-'. Events name her by it.",
    )
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial="viewer")


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def show_people(request: HttpRequest) -> HttpResponse:
    """Show everyone, or let a new person in and show her link."""
    form = PersonForm(request.POST if request.method == "POST" else None)
    command = form.command(people.PersonAdd) if form.is_bound else None
    if command is None:
        return _page(request, form)
    try:
        person = people.add_person(command=command)
    except Conflict as error:
        form.add_error("name", sentence(error.message))
        return _page(request, form)
    return _page(request, PersonForm(), name=person.username, link=_link(request, person.username))


@hub_page(Act.ADMINISTER)
@require_POST
def change_person(request: HttpRequest, name: str, what: str) -> HttpResponse:
    """Change one person: her role, whether she may come in, or the link that she is given."""
    if what == "link":
        return _page(request, PersonForm(), name=name, link=_link(request, name))
    role = request.POST.get("role", "")
    if what == "role":
        apply_change(request, lambda: people.change_role(name=name, role=role), f"{name} is {role} now.")
    elif what == "deactivate":
        apply_change(
            request, lambda: people.deactivate_person(name=name), f"{name} is deactivated, and signed out everywhere."
        )
    elif what == "activate":
        apply_change(
            request, lambda: people.activate_person(name=name), f"{name} may come in again; give her a new link."
        )
    else:
        raise Http404("a person has no such address")
    return redirect("people")


def _link(request: HttpRequest, name: str) -> str:
    return signin.link(request.build_absolute_uri("/").rstrip("/"), signin.create_link_token(username=name))


def _page(request: HttpRequest, form: PersonForm, **given: Any) -> HttpResponse:
    history = history_of(Subject.PERSON, before=request.GET.get("before", ""))
    context = {"history": history, "people": people.list_people(), "roles": list(ROLES), "form": form, **given}
    return render(request, "memoryhub/people.html", context)


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
        return _tokens_page(request, form)
    try:
        token, text = tokens.create_token(command=command, by=request.user.get_username())
    except HubError as error:
        form.add_error("name", sentence(error.message))
        return _tokens_page(request, form)
    return _tokens_page(request, TokenForm(), made=token, text=text)


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def revoke_token(request: HttpRequest, name: str) -> HttpResponse:
    """Ask whether a token is to count no more, or see to it."""
    token = tokens.find_token(name)
    if request.method != "POST":
        return render(request, "memoryhub/revoke_token.html", {"token": token})
    by = request.user.get_username()
    apply_change(request, lambda: tokens.revoke_token(name=name, by=by), f"The token {name} counts no more.")
    return redirect("tokens")


def _tokens_page(request: HttpRequest, form: TokenForm, **given: Any) -> HttpResponse:
    now = clock.now()
    found = tokens.list_tokens()
    good = [token for token in found if tokens.is_good(token, now)]
    history = history_of(Subject.TOKEN, before=request.GET.get("before", ""))
    context = {"history": history, "good": good, "ended": found[len(good) :], "form": form, **given}
    return render(request, "memoryhub/tokens.html", context)
