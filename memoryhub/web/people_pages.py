"""The pages of people, of tokens, and of a store's members."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.utils.html import format_html
from django.views.decorators.http import require_http_methods, require_POST

from memoryhub.config.clients import Client, all_clients
from memoryhub.core import clock
from memoryhub.core.admin.schema_form import SchemaForm, posted
from memoryhub.core.errors import ConflictError, HubError, NotFound
from memoryhub.core.permissions import MEMBER_ROLES, ROLES, Act, allows
from memoryhub.core.stores.store import GLOBAL_STORE, Scope, current_store, list_orgs, list_projects
from memoryhub.core.text import as_sentence
from memoryhub.core.validation import command_from
from memoryhub.models import AgentToken, Subject
from memoryhub.registry import members, people, tokens
from memoryhub.registry.access_history import history_of
from memoryhub.registry.members import MemberSet
from memoryhub.teams.connections import VARIABLE
from memoryhub.web import signin
from memoryhub.web.pages import StorePlace, apply_change, hub_page

ROLE_CHOICES = [
    ("member", "Member: only the projects and organisations that they are a member of"),
    ("administrator", "Administrator: as a member, and manage people, tokens and jobs"),
    ("viewer", "Viewer: read every page"),
    ("reviewer", "Reviewer: also write, review, tag, resolve conflicts, and delete what can be restored"),
    ("owner", "Owner: everything, including erasing, policies, people and tokens"),
]


class PersonForm(SchemaForm[people.PersonAdd]):
    schema = people.PersonAdd
    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="1 to 64 of a-z, 0-9, '.', '_', '-'. Shown as the actor in events.",
    )
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial="member")


@hub_page(Act.ADMINISTER)
@require_http_methods(["GET", "HEAD", "POST"])
def show_people(request: HttpRequest) -> HttpResponse:
    form = PersonForm(posted(request))
    command = form.command()
    if command is None:
        return _people_page(request, form)
    try:
        person = people.add_person(command=command)
    except ConflictError as error:
        form.add_error("name", as_sentence(error.message))
        return _people_page(request, form)
    return _people_page(request, PersonForm(), name=person.username, link=_signin_link(request, person.username))


@hub_page(Act.ADMINISTER)
@require_POST
def change_person(request: HttpRequest, name: str, what: str) -> HttpResponse:
    if what == "link":
        return _people_page(request, PersonForm(), name=name, link=_signin_link(request, name))
    role = request.POST.get("role", "")
    if what == "role":
        apply_change(request, lambda: people.change_role(name=name, role=role), f"{name} now has the role {role}.")
    elif what == "deactivate":
        success = f"{name} is deactivated and signed out everywhere."
        apply_change(request, lambda: people.deactivate_person(name=name), success)
    elif what == "activate":
        success = f"{name} is active again. Send them a new link."
        apply_change(request, lambda: people.activate_person(name=name), success)
    elif what in ("join", "leave"):
        _change_membership(request, name, role, leaves=what == "leave")
    else:
        raise Http404(f"there is no action {what!r} on a person")
    return redirect("people")


def _change_membership(request: HttpRequest, name: str, role: str, *, leaves: bool) -> None:
    stores = {store.place: store for store in members.places_to_manage()}
    store = stores.get(request.POST.get("place", ""))
    if store is None:
        messages.error(request, "Choose a project or an organisation.")
        return

    def join() -> None:
        members.set_member(store=store, name=name, command=command_from(MemberSet, {"role": role}))

    if leaves:
        success = f"{name} has no role of their own in {store.name} any more."
        apply_change(request, lambda: members.remove_member(store=store, name=name), success)
    else:
        apply_change(request, join, f"{name} now has the role {role} in {store.name}.")


def _signin_link(request: HttpRequest, name: str) -> str:
    return signin.new_link(signin.address_of_hub(request), username=name)


def _people_page(request: HttpRequest, form: PersonForm, **extra: Any) -> HttpResponse:
    listed = people.list_people()
    memberships = members.memberships_of([person.name for person in listed])
    context = {
        "history": history_of(Subject.PERSON, before=request.GET.get("before", "")),
        "people": [(person, memberships.get(person.name, [])) for person in listed],
        "roles": list(ROLES),
        "member_roles": list(MEMBER_ROLES),
        "places": list(map(StorePlace.of, members.places_to_manage())),
        "form": form,
        **extra,
    }
    return render(request, "memoryhub/people.html", context)


VERB_CHOICES = [
    ("read", "Read"),
    ("write", "Read and write: memories, decisions, sessions, turns"),
    ("admin", "Everything, including erasing, settings and policies"),
]
_HUB, _SOME = "hub", "some"
_ANY_PROJECT = "PROJECT"


class TokenForm(SchemaForm[tokens.TokenCreate]):
    schema = tokens.TokenCreate
    name = forms.CharField(
        required=False,
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="Such as ci; events show token:ci as the actor. A name can be used only once.",
    )
    verbs = forms.ChoiceField(choices=VERB_CHOICES, widget=forms.RadioSelect, initial="read", label="Permission")
    reach = forms.ChoiceField(widget=forms.RadioSelect, initial=_SOME, label="Scope")
    projects = forms.MultipleChoiceField(required=False, widget=forms.CheckboxSelectMultiple, label="Projects")
    orgs = forms.MultipleChoiceField(
        required=False, widget=forms.CheckboxSelectMultiple, label="Organisations, with their projects"
    )
    days = forms.CharField(
        required=False,
        initial="90",
        label="Expires after (days)",
        widget=forms.TextInput(attrs={"inputmode": "numeric", "autocomplete": "off", "size": "6"}),
        help_text="From 1 to 3,650.",
    )

    def __init__(self, *args: Any, owner: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._owner = owner
        whole = "The whole hub, including future projects"
        projects = list_projects()
        orgs = list_orgs()
        self._set_choices("projects", zip(projects, projects, strict=True))
        self._set_choices("orgs", zip(orgs, orgs, strict=True))
        if not orgs:
            del self.fields["orgs"]
        if owner:
            whole = "Everything that you may see"
            self.fields["name"].label = "Client"
            self.fields["name"].help_text = f"Such as laptop; events show {owner}/laptop as the actor."
        self._set_choices("reach", [(_SOME, "Selected projects"), (_HUB, whole)])

    def _set_choices(self, name: str, choices: Iterable[tuple[str, str]]) -> None:
        self.fields[name].choices = list(choices)  # type: ignore[attr-defined]

    def clean(self) -> dict[str, Any]:
        typed: dict[str, Any] = super().clean() or {}
        if typed.get("reach") == _SOME and not typed.get("projects") and not typed.get("orgs"):
            self.add_error("projects", "Select at least one project, or the whole hub.")
        return typed

    def values(self) -> dict[str, Any]:
        typed = {"orgs": [], **self.cleaned_data}
        if typed.pop("reach") != _SOME:
            typed |= {"projects": None, "orgs": []}
        # None means the whole hub, including future projects.
        return {**typed, "projects": typed["projects"] or None, "verbs": [typed["verbs"]], "person": self._owner}


@hub_page(Act.VIEW)
@require_http_methods(["GET", "HEAD", "POST"])
def show_tokens(request: HttpRequest) -> HttpResponse:
    """Show a person's own tokens and, to those who manage people, those of others and of agents."""
    form = TokenForm(posted(request), owner=_token_owner(request))
    command = form.command()
    if command is None:
        return _tokens_page(request, form)
    try:
        token, text = tokens.create_token(command=command, by=request.user.get_username())
    except HubError as error:
        form.add_error("name", as_sentence(error.message))
        return _tokens_page(request, form)
    address = signin.address_of_hub(request)
    fresh = TokenForm(owner=_token_owner(request))
    return _tokens_page(request, fresh, token=token, text=text, uses=_uses(address, token))


# Whose token the form makes; "": an agent's, as those who manage people make them unless they ask for their own.
def _token_owner(request: HttpRequest) -> str:
    if allows(Act.ADMINISTER) and (request.POST or request.GET).get("for") != "me":
        return ""
    name: str = request.user.get_username()
    return name


# How clients and scripts use a token: texts to copy with a sentence each. None of them has the token in it.
def _uses(address: str, token: AgentToken) -> list[tuple[str, list[tuple[str, str]]]]:
    project = _ANY_PROJECT
    path = "projects"
    if token.projects:
        project = token.projects[0]
        path = f"projects/{project}/memories?limit=5"
    uses = []
    for client in all_clients().values():
        if client.http:
            steps = _client_steps(client, f"{address}/p/{project}/mcp", reads_only=token.verbs == ["read"])
            uses.append((client.name, steps))
    ask = f"read -rs {VARIABLE} && export {VARIABLE}"
    curl = f'curl -H "Authorization: Bearer ${VARIABLE}" "{address}/api/v1/{path}"'
    about = "Run both lines. The first waits for the token without showing what you paste; press Enter."
    return [*uses, ("A script, with curl", [(about, f"{ask}\n{curl}")])]


def _client_steps(client: Client, url: str, *, reads_only: bool) -> list[tuple[str, str]]:
    instead = ""
    if f"/{_ANY_PROJECT}/" in url:
        instead = f", with the project’s id instead of {_ANY_PROJECT}"
    command = f"memory-hub setup {client.id} --url {url}"
    if reads_only:
        command += " --no-hooks"  # hooks write
    ask = format_html("Run this in the project’s folder{}. It asks for the token.", instead)
    if client.repository:
        file = client.repository[0]
        where = " in the project’s folder"
    else:
        file = re.sub(r"\{\w+\}", "~/.config", client.user[-1].replace("{home}", "~"))
        where = ", which counts in every folder"
    source: str = format_html("takes the token from the environment variable <code>{}</code>", VARIABLE)
    if client.http and client.http.input:
        source = "asks for the token once, and keeps it"
    put = format_html("Or put this into <code>{}</code>{}. {} {}.", file, where, client.name, source)
    return [(ask, command), (put, client.http_text(url, VARIABLE))]


@hub_page(Act.VIEW)
@require_http_methods(["GET", "HEAD", "POST"])
def revoke_token(request: HttpRequest, name: str) -> HttpResponse:
    token = tokens.find_token(name)
    if not allows(Act.ADMINISTER) and token.person != request.user.get_username():
        raise NotFound(tokens.no_token(name))
    if request.method != "POST":
        return render(request, "memoryhub/revoke_token.html", {"token": token})
    by = request.user.get_username()
    apply_change(request, lambda: tokens.revoke_token(name=name, by=by), f"The token {name} is revoked.")
    return redirect("tokens")


def _tokens_page(request: HttpRequest, form: TokenForm, **extra: Any) -> HttpResponse:
    now = clock.now()
    manages = allows(Act.ADMINISTER)
    history = None
    person: str | None = request.user.get_username()
    if manages:
        history = history_of(Subject.TOKEN, before=request.GET.get("before", ""))
        person = None
    listed = tokens.list_tokens(person=person)
    valid = [token for token in listed if tokens.is_good(token, now)]
    context = {
        "history": history,
        "own_history": history_of(Subject.PERSON, name=request.user.get_username()),
        "valid": valid,
        "ended": listed[len(valid) :],
        "form": form,
        "owner": _token_owner(request),
        "manages": manages,
        **extra,
    }
    return render(request, "memoryhub/tokens.html", context)


MEMBER_ROLE_CHOICES = [
    ("viewer", "Viewer: read every page here"),
    ("reviewer", "Reviewer: also write, review, tag, resolve conflicts, and delete what can be restored"),
    ("owner", "Owner: everything here, including erasing, policies and members"),
]


class MemberForm(SchemaForm[MemberSet]):
    schema = MemberSet
    name = forms.CharField(
        required=False,
        label="Person",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="Their name in the hub. Those who manage people add them on the People page.",
    )
    role = forms.ChoiceField(choices=MEMBER_ROLE_CHOICES, widget=forms.RadioSelect, initial="reviewer")

    def values(self) -> dict[str, Any]:
        return {"role": self.cleaned_data["role"]}


def members_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    if current_store() == GLOBAL_STORE:
        raise Http404("the global scope has no members")
    name = request.POST.get("name", "").strip()
    if "remove" in request.POST:
        removal = partial(members.remove_member, store=current_store(), name=name)
        apply_change(request, removal, f"{name} has no role of their own here any more.")
        return redirect("admin:members")
    form = MemberForm(posted(request))
    command = form.command()
    if command is not None:
        try:
            member = members.set_member(store=current_store(), name=name, command=command)
        except HubError as error:
            form.add_error("name", as_sentence(error.message))
        else:
            messages.success(request, f"{name} now has the role {member.role} here.")
            return redirect("admin:members")
    store = current_store()
    page = {
        "members": members.list_members(store),
        "roles": list(MEMBER_ROLES),
        "history": history_of(Subject.MEMBER, name=store.place, before=request.GET.get("before", "")),
        "is_org": store.scope is Scope.ORG,
        "form": form,
    }
    return TemplateResponse(request, "admin/members.html", {**context, **page})
