"""The pages that create an organisation or a project."""

from __future__ import annotations

from typing import Any

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods
from pydantic import ValidationError

from memoryhub.core.errors import HubError
from memoryhub.core.permissions import TO_MAKE_PLACES, Act
from memoryhub.core.stores.store import StoreId, list_orgs, org_store, project_store
from memoryhub.core.validation import explain
from memoryhub.registry import organizations, projects
from memoryhub.registry.organizations import OrgCreate
from memoryhub.registry.projects import ProjectCreate
from memoryhub.web.addresses import Place
from memoryhub.web.hub_pages import hub_page, sentence


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
