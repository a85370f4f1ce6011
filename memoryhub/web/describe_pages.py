"""The pages that create a project or an organisation, and the page that describes a store."""

from __future__ import annotations

import json
from typing import Any

from django import forms
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.template.response import TemplateResponse
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from memoryhub.core.errors import HubError
from memoryhub.core.permissions import TO_MAKE_PLACES, Act
from memoryhub.core.stores.store import Scope, StoreId, current_store, list_orgs, org_store, project_store
from memoryhub.core.validation import explain
from memoryhub.registry import organizations, projects
from memoryhub.registry.organizations import OrgCreate
from memoryhub.registry.projects import ProjectCreate
from memoryhub.web.pages import Place, hub_page, sentence
from sessions_app.schemas import OrgDescribe, ProfileView, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe


class NewOrgForm(forms.Form):
    noun = "organisation"
    id = forms.CharField(
        required=False,
        label="ID",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
        help_text="1 to 64 of a-z, 0-9, '.', '_', '-'. It can't be changed later.",
    )
    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "true"}))

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    def create(self) -> StoreId:
        return org_store(organizations.create_org(command=OrgCreate.model_validate(self.values())).org_id)

    def values(self) -> dict[str, str]:
        typed = {name: value.replace("\r\n", "\n") for name, value in self.cleaned_data.items()}
        return {name: value for name, value in typed.items() if value}


class NewProjectForm(NewOrgForm):
    noun = "project"
    org_id = forms.ChoiceField(
        required=False, label="Organisation", help_text="The project inherits the memories of its organisation."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["org_id"].choices = [("", "No organisation"), *((org, org) for org in list_orgs())]  # type: ignore[attr-defined]

    def create(self) -> StoreId:
        project = projects.create_project(command=ProjectCreate.model_validate(self.values()))
        return project_store(project.project_id)


@hub_page(Act.GOVERN, to=TO_MAKE_PLACES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_org(request: HttpRequest) -> HttpResponse:
    return _page(request, NewOrgForm)


@hub_page(Act.GOVERN, to=TO_MAKE_PLACES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_project(request: HttpRequest) -> HttpResponse:
    return _page(request, NewProjectForm)


def _page(request: HttpRequest, kind: type[NewOrgForm]) -> HttpResponse:
    form = kind(request.POST if request.method == "POST" else None, initial=request.GET.dict())
    store = _create(form) if form.is_valid() else None
    if store:
        return redirect(Place.of(store).url)
    return render(request, "memoryhub/new.html", {"form": form, "noun": kind.noun})


def _create(form: NewOrgForm) -> StoreId | None:
    try:
        return form.create()
    except ValidationError as error:
        field = str(error.errors(include_url=False)[0]["loc"][0])
        form.add_error(field if field in form.fields else None, sentence(explain(error)))
    except HubError as error:
        form.add_error(None, sentence(error.message))
    return None


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
            self.add_error(field if field in self.fields else None, _as_sentence(explain(error)))
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
    form = kind(request.POST or None, initial=_initial_values(profile()))
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
        form.add_error(None, _as_sentence(error.message))
        return False
    if redacted:
        messages.warning(request, f"The description was saved with these secrets masked: {', '.join(redacted)}.")
    else:
        messages.success(request, "The description was saved.")
    return True


def _initial_values(view: ProfileView) -> dict[str, str]:
    return {
        "name": view.name,
        "description": view.description,
        "org_id": view.org or "",
        "root_path": view.root_path,
        "tags": ", ".join(view.tags),
        "metadata": json.dumps(view.metadata, ensure_ascii=False, indent=2) if view.metadata else "",
    }


def _as_sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
