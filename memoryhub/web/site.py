"""The admin of the current store: its pages, and the context of every page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.apps import SimpleAdminConfig
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, URLResolver, path, reverse
from django.views.decorators.http import require_POST

from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.routing import STORE_APPS, current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.core.text import as_sentence
from memoryhub.web.pages import StorePlace, other_places


# Without autodiscovery: the URLs do that, so that the hub answers its windows before it has loaded its pages
class HubAdminConfig(SimpleAdminConfig):
    default_site = "memoryhub.web.site.HubAdminSite"


class HubAdminSite(AdminSite):
    """Shows the current store; models of hub.db are not in any store and have no pages here."""

    site_title = "Memory Hub"
    site_header = "Memory Hub"
    index_title = "Overview"
    enable_nav_sidebar = False

    def has_permission(self, request: HttpRequest) -> bool:
        return may(request.user, Act.VIEW)

    def register(self, model_or_iterable: Any, admin_class: Any = None, **options: Any) -> None:
        models = model_or_iterable
        if isinstance(model_or_iterable, type):
            models = [model_or_iterable]
        ours = [model for model in models if model._meta.app_label in STORE_APPS]
        super().register(ours, admin_class, **options)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        # These import models, which are not loaded yet when the site is created.
        from memoryhub.core.admin import needs
        from memoryhub.web import (
            describe_pages,
            findings_page,
            governance_pages,
            inbox_page,
            people_pages,
            settings_page,
            worth_page,
        )
        from memoryhub.web.live import follow_store, follow_task, show_task
        from memoryhub.web.navigation import change_views, show_matching
        from memoryhub.web.secrets_page import secrets_page

        page = self._page
        describe = needs(Act.GOVERN, page(describe_pages.describe_page))
        members = needs(Act.GOVERN, page(people_pages.members_page, title="Members"))
        settings = needs(Act.GOVERN, page(settings_page.settings_page, title="Settings"))
        verify = require_POST(needs(Act.WRITE, self.verify_chain))
        verdicts = require_POST(needs(Act.REVIEW, inbox_page.give_verdicts))
        pages = [
            path("describe/", self.admin_view(describe), name="describe"),
            path("members/", self.admin_view(members), name="members"),
            path("settings/", self.admin_view(settings), name="settings"),
            path("inbox/", self.admin_view(page(inbox_page.show_inbox)), name="inbox"),
            path("inbox/verdicts/", self.admin_view(verdicts), name="inbox_verdicts"),
            path("graph/<int:entity_id>/", self.admin_view(page(governance_pages.show_graph)), name="graph"),
            path("pick/", self.admin_view(show_matching), name="pick"),
            path("secrets/", self.admin_view(page(secrets_page, title="Secrets")), name="secrets"),
            path("blame/", self.admin_view(page(governance_pages.show_blame)), name="blame"),
            path("audit/", self.admin_view(page(governance_pages.show_audit)), name="audit"),
            path("imports/", self.admin_view(page(governance_pages.show_imports)), name="imports"),
            path("imports/start/", self.admin_view(page(governance_pages.show_start)), name="import_start"),
            path("imports/<int:batch_id>/", self.admin_view(page(governance_pages.show_import)), name="import"),
            path("findings/", self.admin_view(page(findings_page.findings_page, title="Findings")), name="findings"),
            path("worth/", self.admin_view(page(worth_page.worth_page, title="Worth")), name="worth"),
            path("log/verify/", self.admin_view(verify), name="verify_chain"),
            path("core/rawevent/replay/", self.admin_view(page(governance_pages.show_replay)), name="replay"),
            path("core/rawevent/as-of/", self.admin_view(page(governance_pages.show_past)), name="as_of"),
            path("views/", self.admin_view(require_POST(change_views)), name="views"),
            path("live/", self.admin_view(follow_store), name="live"),
            path("tasks/<str:task_id>/", self.admin_view(page(show_task)), name="task"),
            path("tasks/<str:task_id>/live/", self.admin_view(follow_task), name="live_task"),
            path("stream/<path:stream>/", self.admin_view(self.show_stream), name="stream"),
        ]
        return [*pages, *super().get_urls()]

    def _page(self, view: Callable[..., HttpResponseBase], **context: Any) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def page(request: HttpRequest, **kwargs: Any) -> HttpResponseBase:
            return view(request, context={**self.each_context(request), **context}, **kwargs)

        return page

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from memoryhub.core.log import anchor_warning

        context = super().each_context(request)
        if not current_alias():
            return {**context, "place": None, "other_places": other_places(None)}
        store = current_store()
        return {
            **context,
            "place": StorePlace.of(store),
            "other_places": other_places(store),
            "log_warning": anchor_warning(),
        }

    def get_log_entries(self, request: HttpRequest) -> Any:
        return ()  # an object's history is its events; Django's admin log is never written

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from governance.imports import list_batches
        from memoryhub.web.findings_page import latest_receipt
        from memoryhub.web.overviews import can_load_sample, client_commands, first_steps, overview

        batches = list_batches()
        steps = first_steps(request, StorePlace.of(current_store()))
        context = {
            "steps": steps,
            "steps_done": sum(step.is_done for step in steps),
            "clients": client_commands(),
            "can_load_sample": can_load_sample(),
            "receipt": latest_receipt(batches),
        }
        return super().index(request, {**overview(batches), **context, **(extra_context or {})})

    def app_index(self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None) -> Any:
        return redirect("admin:index")

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        raise Http404("this hub has no passwords")

    password_change_done = password_change

    def verify_chain(self, request: HttpRequest) -> HttpResponse:
        from memoryhub.ops.jobs.status import check_chain

        check = check_chain()
        level = messages.SUCCESS if check.ok else messages.ERROR
        messages.add_message(request, level, as_sentence(check.finding))
        return redirect("admin:core_rawevent_changelist")

    def show_stream(self, request: HttpRequest, stream: str) -> HttpResponse:
        """Redirect to the page of a stream's object, or to its events in the log."""
        kind, _, tail = stream.partition(":")
        for model_admin in self._registry.values():
            if tail and kind == getattr(model_admin, "stream_kind", None):
                try:
                    return redirect(model_admin.stream_url(tail))  # type: ignore[attr-defined]
                except NoReverseMatch:
                    break
        return redirect(reverse("admin:core_rawevent_changelist", query={"stream": stream}))
