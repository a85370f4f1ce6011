"""The page on which a person describes a store: its name, what it is for, where it belongs."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from pydantic import ValidationError

from memoryhub.core.errors import HubError
from memoryhub.core.stores.store import Scope, current_store, list_orgs
from memoryhub.core.validation import explain
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe

_TYPED_AS_TEXT = ("name", "description", "root_path")


class OrgForm(forms.Form):
    """What a person may say of an organisation or the global scope. Only what she changed is sent on."""

    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "true"}))
    tags = forms.CharField(required=False, help_text="Words to find it by, separated by commas.")
    metadata = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"}),
        help_text="A JSON object, up to 16,000 characters.",
    )
    schema: type[OrgDescribe] = OrgDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        for field in self.fields.values():
            field.show_hidden_initial = True  # what was shown tells what was changed, whatever others did meanwhile

    def command(self) -> OrgDescribe | None:
        """Return the command with what was changed, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        try:
            return self.schema(**{name: self._value(name) for name in self.changed_data})
        except ValidationError as error:
            field = str(error.errors(include_url=False)[0]["loc"][0])
            self.add_error(field if field in self.fields else None, _sentence(explain(error)))
        except json.JSONDecodeError as error:
            self.add_error("metadata", f"This is not JSON: {error.msg} at line {error.lineno}, column {error.colno}.")
        except RecursionError:
            self.add_error("metadata", "This is nested too deeply.")
        return None

    def _value(self, name: str) -> Any:
        typed: str = self.cleaned_data[name].replace("\r\n", "\n")
        if name == "tags":
            return [tag for tag in (part.strip() for part in typed.split(",")) if tag]
        if name == "metadata":
            return json.loads(typed) if typed.strip() else {}
        return typed if name in _TYPED_AS_TEXT else typed or None


class ProjectForm(OrgForm):
    org_id = forms.ChoiceField(
        required=False, label="Organisation", help_text="Its projects inherit what is kept in the organisation."
    )
    root_path = forms.CharField(required=False, label="Folder", help_text="Where its files are.")
    field_order = ["name", "description", "org_id", "root_path", "tags", "metadata"]
    schema = ProjectDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["org_id"].choices = [("", "none"), *((org, org) for org in list_orgs())]  # type: ignore[attr-defined]
        self.fields[
            "metadata"
        ].help_text = "Goals, constraints, the present state: a JSON object, up to 16,000 characters."


def describe_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    """Show the form, or take what was typed and lead to the overview."""
    kind = ProjectForm if current_store().scope is Scope.PROJECT else OrgForm
    form = kind(request.POST or None, initial=_initial(profile()))
    if request.method == "POST" and _kept(request, form):
        return redirect("admin:index")
    return TemplateResponse(request, "admin/describe.html", {**context, "form": form})


def _kept(request: HttpRequest, form: OrgForm) -> bool:
    command = form.command()
    if command is None:
        return False
    try:
        redacted = describe(command=command).redacted
    except HubError as error:
        form.add_error(None, _sentence(error.message))
        return False
    if redacted:
        messages.warning(request, f"Taken out before anything was kept: {', '.join(redacted)}.")
    else:
        messages.success(request, "The description was saved.")
    return True


def _initial(known: ProfileView) -> dict[str, str]:
    return {
        "name": known.name,
        "description": known.description,
        "org_id": known.org or "",
        "root_path": known.root_path,
        "tags": ", ".join(known.tags),
        "metadata": json.dumps(known.metadata, ensure_ascii=False, indent=2) if known.metadata else "",
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
