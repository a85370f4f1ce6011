"""The page of a project's or an organisation's members."""

from __future__ import annotations

from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse

from memoryhub.core.errors import HubError
from memoryhub.core.permissions import MEMBER_ROLES
from memoryhub.core.stores.store import Scope, current_store
from memoryhub.models import Subject
from memoryhub.registry import members
from memoryhub.registry.access_history import history_of
from memoryhub.web.hub_pages import CommandForm, apply_change, sentence

ROLE_CHOICES = [
    ("viewer", "Viewer: read every page here"),
    ("reviewer", "Reviewer: also write, review, tag, resolve conflicts, and delete what can be restored"),
    ("owner", "Owner: everything here, including erasing, policies and members"),
]


class MemberForm(CommandForm):
    name = forms.CharField(
        required=False,
        label="Person",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none", "spellcheck": "false"}),
        help_text="Their name in the hub. Those who manage people add them on the People page.",
    )
    role = forms.ChoiceField(choices=ROLE_CHOICES, widget=forms.RadioSelect, initial="reviewer")

    def values(self) -> dict[str, Any]:
        return {"role": self.cleaned_data["role"]}


def members_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    name = request.POST.get("name", "").strip()
    if "remove" in request.POST:
        apply_change(
            request,
            lambda: members.remove_member(store=current_store(), name=name),
            f"{name} has no role of their own here any more.",
        )
        return redirect("admin:members")
    form = MemberForm(request.POST if request.method == "POST" else None)
    command = form.command(members.MemberSet) if form.is_bound else None
    if command is not None:
        try:
            member = members.set_member(store=current_store(), name=name, command=command)
        except HubError as error:
            form.add_error("name", sentence(error.message))
        else:
            messages.success(request, f"{name} now has the role {member.role} here.")
            return redirect("admin:members")
    store = current_store()
    shown = {
        "members": members.list_members(store),
        "roles": list(MEMBER_ROLES),
        "history": history_of(Subject.MEMBER, name=store.place, before=request.GET.get("before", "")),
        "is_org": store.scope is Scope.ORG,
        "form": form,
    }
    return TemplateResponse(request, "admin/members.html", {**context, **shown})
