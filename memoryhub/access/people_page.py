"""The page of the hub's people: who there is, with which role, and a link for whom it is time to come in."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST

from memoryhub import signin
from memoryhub.access import people
from memoryhub.access.history import history_of
from memoryhub.access.pages import CommandForm, hub_page, sentence, told
from memoryhub.core.errors import Conflict
from memoryhub.core.permissions import ROLES, Act
from memoryhub.models import Subject

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
        told(request, lambda: people.change_role(name=name, role=role), f"{name} is {role} now.")
    elif what == "deactivate":
        told(request, lambda: people.deactivate_person(name=name), f"{name} is deactivated, and signed out everywhere.")
    elif what == "activate":
        told(request, lambda: people.activate_person(name=name), f"{name} may come in again; give her a new link.")
    else:
        raise Http404("a person has no such address")
    return redirect("people")


def _link(request: HttpRequest, name: str) -> str:
    return signin.link(request.build_absolute_uri("/").rstrip("/"), signin.create_link_token(username=name))


def _page(request: HttpRequest, form: PersonForm, **given: Any) -> HttpResponse:
    history = history_of(Subject.PERSON, before=request.GET.get("before", ""))
    context = {"history": history, "people": people.list_people(), "roles": list(ROLES), "form": form, **given}
    return render(request, "memoryhub/people.html", context)
