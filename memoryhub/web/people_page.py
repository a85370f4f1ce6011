"""The pages of people and tokens."""

from __future__ import annotations

import re
from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from memoryhub.config.clients import all_clients
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
    ("viewer", "Viewer: read every page"),
    ("reviewer", "Reviewer: also write, review, tag, resolve conflicts, and delete what can be restored"),
    ("owner", "Owner: everything, including erasing, policies, people and tokens"),
]


class PersonForm(CommandForm):
    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="1 to 64 of a-z, 0-9, '.', '_', '-'. Shown as the actor in events.",
    )
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial="viewer")


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def show_people(request: HttpRequest) -> HttpResponse:
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
    if what == "link":
        return _page(request, PersonForm(), name=name, link=_link(request, name))
    role = request.POST.get("role", "")
    if what == "role":
        apply_change(request, lambda: people.change_role(name=name, role=role), f"{name} now has the role {role}.")
    elif what == "deactivate":
        apply_change(
            request, lambda: people.deactivate_person(name=name), f"{name} is deactivated and signed out everywhere."
        )
    elif what == "activate":
        apply_change(
            request, lambda: people.activate_person(name=name), f"{name} is active again. Send them a new link."
        )
    else:
        raise Http404(f"there is no action {what!r} on a person")
    return redirect("people")


def _link(request: HttpRequest, name: str) -> str:
    return signin.link(signin.address_of_hub(request), signin.create_link_token(username=name))


def _page(request: HttpRequest, form: PersonForm, **extra: Any) -> HttpResponse:
    history = history_of(Subject.PERSON, before=request.GET.get("before", ""))
    context = {"history": history, "people": people.list_people(), "roles": list(ROLES), "form": form, **extra}
    return render(request, "memoryhub/people.html", context)


VERB_CHOICES = [
    ("read", "Read"),
    ("write", "Read and write: memories, decisions, sessions, turns"),
    ("admin", "Everything, including erasing, settings and policies"),
]
_HUB, _SOME = "hub", "some"


class TokenForm(CommandForm):
    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="Such as ci; events show token:ci as the actor. A name can be used only once.",
    )
    verbs = forms.ChoiceField(choices=VERB_CHOICES, widget=forms.RadioSelect, initial="read", label="Permission")
    reach = forms.ChoiceField(
        choices=[(_SOME, "Selected projects"), (_HUB, "The whole hub, including future projects")],
        widget=forms.RadioSelect,
        initial=_SOME,
        label="Scope",
    )
    projects = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label="Projects")
    days = forms.CharField(
        required=False,
        initial="90",
        label="Expires after (days)",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off", "size": "6"}),
        help_text="From 1 to 3,650.",
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["projects"].choices = [(project, project) for project in list_projects()]  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = super().clean() or {}
        if typed.get("reach") == _SOME and not typed.get("projects"):
            self.add_error("projects", "Select at least one project, or the whole hub.")
        return typed

    def values(self) -> dict[str, Any]:
        typed = dict(self.cleaned_data)
        # None means the whole hub, including future projects.
        selected = typed["projects"] if typed.pop("reach") == _SOME else None
        return {**typed, "projects": selected, "verbs": [typed["verbs"]]}


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def show_tokens(request: HttpRequest) -> HttpResponse:
    form = TokenForm(request.POST if request.method == "POST" else None)
    command = form.command(tokens.TokenCreate) if form.is_bound else None
    if command is None:
        return _tokens_page(request, form)
    try:
        token, text = tokens.create_token(command=command, by=request.user.get_username())
    except HubError as error:
        form.add_error("name", sentence(error.message))
        return _tokens_page(request, form)
    address = signin.address_of_hub(request)
    return _tokens_page(request, TokenForm(), token=token, text=text, snippets=_snippets(address, token, text))


# Where `memory-hub mcp --http 8322` listens, as in the documentation
_MCP_ADDRESS = "http://127.0.0.1:8322/mcp"


def _snippets(address: str, token: Any, text: str) -> list[dict[str, str]]:
    """Return how scripts and clients use a token, as titles, notes and texts to copy."""
    project = token.projects[0] if token.projects else ""
    path = f"projects/{project}/memories?limit=5" if project else "projects"
    curl = f"curl -H 'Authorization: Bearer {text}' '{address}/api/v1/{path}'"
    start = "Start the server with “memory-hub mcp --http 8322”, and put this into {}."
    clients = [
        {
            "title": client.name,
            "about": start.format(_on_linux(client.user[-1])),
            "text": client.http_text(_MCP_ADDRESS, text),
        }
        for client in all_clients().values()
        if client.http
    ]
    return [{"title": "curl", "about": "Over REST, as a script would.", "text": curl}, *clients]


def _on_linux(path: str) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: "~" if name[1] == "home" else "~/.config", path)


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def revoke_token(request: HttpRequest, name: str) -> HttpResponse:
    token = tokens.find_token(name)
    if request.method != "POST":
        return render(request, "memoryhub/revoke_token.html", {"token": token})
    by = request.user.get_username()
    apply_change(request, lambda: tokens.revoke_token(name=name, by=by), f"The token {name} is revoked.")
    return redirect("tokens")


def _tokens_page(request: HttpRequest, form: TokenForm, **extra: Any) -> HttpResponse:
    now = clock.now()
    listed = tokens.list_tokens()
    valid = [token for token in listed if tokens.is_good(token, now)]
    history = history_of(Subject.TOKEN, before=request.GET.get("before", ""))
    context = {"history": history, "valid": valid, "ended": listed[len(valid) :], "form": form, **extra}
    return render(request, "memoryhub/tokens.html", context)
