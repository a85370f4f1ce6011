"""The page that edits a store's description."""

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
    """The description of an organisation or the global scope. Only changed fields are saved."""

    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "true"}))
    tags = forms.CharField(required=False, help_text="Separated by commas.")
    metadata = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"}),
        help_text="A JSON object, up to 16,000 characters.",
    )
    schema: type[OrgDescribe] = OrgDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})
        for field in self.fields.values():
            # Detects changes against the values shown, so that a field another person changed meanwhile is not reset
            field.show_hidden_initial = True

    def command(self) -> OrgDescribe | None:
        """Return a command with the changed fields, or None if the form has errors."""
        if not self.is_valid():
            return None
        try:
            return self.schema(**{name: self._value(name) for name in self.changed_data})
        except ValidationError as error:
            field = str(error.errors(include_url=False)[0]["loc"][0])
            self.add_error(field if field in self.fields else None, _sentence(explain(error)))
        except json.JSONDecodeError as error:
            self.add_error(
                "metadata", f"This is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
            )
        except RecursionError:
            self.add_error("metadata", "This is nested too deeply; use fewer levels.")
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
        required=False, label="Organisation", help_text="The project inherits the memories of its organisation."
    )
    root_path = forms.CharField(required=False, label="Folder", help_text="The path of the project's files.")
    field_order = ["name", "description", "org_id", "root_path", "tags", "metadata"]
    schema = ProjectDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["org_id"].choices = [("", "No organisation"), *((org, org) for org in _orgs())]  # type: ignore[attr-defined]
        goals = "Goals, constraints and current state as a JSON object, up to 16,000 characters."
        self.fields["metadata"].help_text = goals


# Also that of the project, which a member of the project alone does not see
def _orgs() -> list[str]:
    return sorted({*list_orgs(), *filter(None, [profile().org])})


def describe_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    kind = ProjectForm if current_store().scope is Scope.PROJECT else OrgForm
    form = kind(request.POST or None, initial=_initial(profile()))
    if request.method == "POST" and _save(request, form):
        return redirect("admin:index")
    return TemplateResponse(request, "admin/describe.html", {**context, "form": form})


def _save(request: HttpRequest, form: OrgForm) -> bool:
    command = form.command()
    if command is None:
        return False
    try:
        redacted = describe(command=command).redacted
    except HubError as error:
        form.add_error(None, _sentence(error.message))
        return False
    if redacted:
        messages.warning(request, f"The description was saved with these secrets masked: {', '.join(redacted)}.")
    else:
        messages.success(request, "The description was saved.")
    return True


def _initial(view: ProfileView) -> dict[str, str]:
    return {
        "name": view.name,
        "description": view.description,
        "org_id": view.org or "",
        "root_path": view.root_path,
        "tags": ", ".join(view.tags),
        "metadata": json.dumps(view.metadata, ensure_ascii=False, indent=2) if view.metadata else "",
    }


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
