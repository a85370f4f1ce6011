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

from memoryhub.core.admin.schema_form import SchemaForm, posted
from memoryhub.core.errors import HubError
from memoryhub.core.permissions import TO_MAKE_PLACES, Act
from memoryhub.core.stores.store import Scope, StoreId, current_store, list_orgs, org_store, project_store
from memoryhub.core.text import as_sentence
from memoryhub.registry import organizations, projects
from memoryhub.registry.organizations import OrgCreate
from memoryhub.registry.projects import ProjectCreate
from memoryhub.web.pages import StorePlace, hub_page
from sessions_app.schemas import OrgDescribe, ProjectDescribe
from sessions_app.selectors import profile
from sessions_app.services.profile import describe


class NewOrgForm(SchemaForm[Any]):
    noun = "organisation"
    schema: type[Any] = OrgCreate
    id = forms.CharField(
        required=False,
        label="ID",
        widget=forms.TextInput(attrs={"autocomplete": "off", "autocapitalize": "none"}),
        help_text="1 to 64 of a-z, 0-9, '.', '_', '-'. It can't be changed later.",
    )
    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "true"}))

    def values(self) -> dict[str, Any]:
        return {name: value.replace("\r\n", "\n") for name, value in self.cleaned_data.items() if value}

    def create(self, command: Any) -> StoreId:
        return org_store(organizations.create_org(command=command).org_id)


class NewProjectForm(NewOrgForm):
    noun = "project"
    schema = ProjectCreate
    org_id = forms.ChoiceField(
        required=False, label="Organisation", help_text="The project inherits the memories of its organisation."
    )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["org_id"].choices = _org_choices(list_orgs())  # type: ignore[attr-defined]

    def create(self, command: Any) -> StoreId:
        return project_store(projects.create_project(command=command).project_id)


def _org_choices(orgs: list[str]) -> list[tuple[str, str]]:
    return [("", "No organisation"), *zip(orgs, orgs, strict=True)]


@hub_page(Act.GOVERN, to=TO_MAKE_PLACES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_org(request: HttpRequest) -> HttpResponse:
    return _create_page(request, NewOrgForm)


@hub_page(Act.GOVERN, to=TO_MAKE_PLACES)
@require_http_methods(["GET", "HEAD", "POST"])
def new_project(request: HttpRequest) -> HttpResponse:
    return _create_page(request, NewProjectForm)


def _create_page(request: HttpRequest, kind: type[NewOrgForm]) -> HttpResponse:
    form = kind(posted(request), initial=request.GET.dict())
    command = form.command()
    if command:
        try:
            return redirect(StorePlace.of(form.create(command)).url)
        except HubError as error:
            form.add_error(None, as_sentence(error.message))
    return render(request, "memoryhub/new.html", {"form": form, "noun": kind.noun})


class OrgForm(SchemaForm[Any]):
    """The description of an organisation or the global scope. Only changed fields are saved."""

    name = forms.CharField(required=False, widget=forms.TextInput(attrs={"autocomplete": "off"}))
    description = forms.CharField(required=False, widget=forms.Textarea(attrs={"rows": 4, "spellcheck": "true"}))
    tags = forms.CharField(required=False, help_text="Separated by commas.")
    metadata = forms.CharField(
        required=False,
        widget=forms.Textarea(attrs={"rows": 8, "spellcheck": "false", "class": "code"}),
        help_text="A JSON object, up to 16,000 characters.",
    )
    schema: type[Any] = OrgDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for field in self.fields.values():
            # Detects changes against the values shown, so that a field another person changed meanwhile is not reset
            field.show_hidden_initial = True

    def values(self) -> dict[str, Any]:
        return {name: self.cleaned_data[name] for name in self.changed_data}

    def clean_description(self) -> str:
        return str(self.cleaned_data["description"]).replace("\r\n", "\n")

    def clean_tags(self) -> list[str]:
        return [tag.strip() for tag in self.cleaned_data["tags"].split(",") if tag.strip()]

    def clean_metadata(self) -> Any:
        try:
            return json.loads(self.cleaned_data["metadata"].strip() or "{}")
        except json.JSONDecodeError as error:
            problem = f"This is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}."
        except RecursionError:
            problem = "This is nested too deeply; use fewer levels."
        raise forms.ValidationError(problem)


class ProjectForm(OrgForm):
    org_id = forms.ChoiceField(
        required=False, label="Organisation", help_text="The project inherits the memories of its organisation."
    )
    root_path = forms.CharField(required=False, label="Folder", help_text="The path of the project's files.")
    field_order = ["name", "description", "org_id", "root_path", "tags", "metadata"]
    schema = ProjectDescribe

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Also the project's own organisation, which a member of the project alone does not see
        orgs = sorted({*list_orgs(), *filter(None, [profile().org])})
        self.fields["org_id"].choices = _org_choices(orgs)  # type: ignore[attr-defined]
        goals = "Goals, constraints and current state as a JSON object, up to 16,000 characters."
        self.fields["metadata"].help_text = goals

    def clean_org_id(self) -> str | None:
        return self.cleaned_data["org_id"] or None


def describe_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    kind = ProjectForm if current_store().scope is Scope.PROJECT else OrgForm
    view = profile()
    initial = {
        "name": view.name,
        "description": view.description,
        "org_id": view.org or "",
        "root_path": view.root_path,
        "tags": ", ".join(view.tags),
        "metadata": json.dumps(view.metadata, ensure_ascii=False, indent=2) if view.metadata else "",
    }
    form = kind(request.POST or None, initial=initial)
    if request.method == "POST" and _save(request, form):
        return redirect("admin:index")
    title = f"Describe {context['place'].this}"
    return TemplateResponse(request, "admin/describe.html", {**context, "title": title, "form": form})


def _save(request: HttpRequest, form: OrgForm) -> bool:
    command = form.command()
    if command is None:
        return False
    try:
        redacted = describe(command=command).redacted
    except HubError as error:
        form.add_error(None, as_sentence(error.message))
        return False
    if redacted:
        messages.warning(request, f"The description was saved with these secrets masked: {', '.join(redacted)}.")
    else:
        messages.success(request, "The description was saved.")
    return True
