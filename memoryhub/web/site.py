"""The admin of the current store: its pages, and the context of every page."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.contrib.admin import AdminSite
from django.contrib.admin.apps import AdminConfig
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import NoReverseMatch, URLPattern, URLResolver, path, reverse
from django.views.decorators.http import require_POST

from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.routing import STORE_APPS, current_alias
from memoryhub.core.stores.store import current_store
from memoryhub.web.addresses import Place, other_places

# The lists in the navigation, in this order; others follow
_TABS = (
    "memories_memory",
    "decisions_decision",
    "sessions_app_session",
    "sessions_app_turn",
    "sessions_app_iteration",
    "sessions_app_commit",
    "governance_affirmation",
    "core_rawevent",
)
# Its lists are shown in projects only: organisations have no sessions.
_PROJECT_APP = "sessions_app"
_ORDER = {name: index for index, name in enumerate(_TABS)}


class HubAdminConfig(AdminConfig):
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
        """Register models of the stores; skip those of hub.db and of the queue."""
        models: list[Any] = [model_or_iterable] if isinstance(model_or_iterable, type) else list(model_or_iterable)
        ours = [model for model in models if model._meta.app_label in STORE_APPS]
        super().register(ours, admin_class, **options)

    def get_urls(self) -> list[URLPattern | URLResolver]:
        from memoryhub.core.admin import needs  # imports models, which are not loaded yet when the site is created
        from memoryhub.web.live import follow_store, follow_task

        verify = require_POST(needs(Act.WRITE, self.verify_chain))
        pages = [
            path("describe/", self.admin_view(needs(Act.GOVERN, self.describe)), name="describe"),
            path("settings/", self.admin_view(needs(Act.GOVERN, self.settings)), name="settings"),
            path("secrets/", self.admin_view(self.secrets), name="secrets"),
            path("log/verify/", self.admin_view(verify), name="verify_chain"),
            path("core/rawevent/replay/", self.admin_view(self.replay), name="replay"),
            path("core/rawevent/as-of/", self.admin_view(self.past), name="as_of"),
            path("live/", self.admin_view(follow_store), name="live"),
            path("tasks/<str:task_id>/", self.admin_view(self.task), name="task"),
            path("tasks/<str:task_id>/live/", self.admin_view(follow_task), name="live_task"),
            path("stream/<path:stream>/", self.admin_view(self.show_stream), name="stream"),
        ]
        return [*pages, *super().get_urls()]

    def each_context(self, request: HttpRequest) -> dict[str, Any]:
        from memoryhub.core.log import anchor_warning

        context = super().each_context(request)
        store = current_store() if current_alias.get() else None
        place = Place.of(store) if store else None
        return {
            **context,
            "place": place,
            "others": other_places(store),
            "tabs": self._tabs(request, context, place),
            "log_warning": anchor_warning() if store else "",
        }

    def _tabs(self, request: HttpRequest, context: dict[str, Any], place: Place | None) -> list[dict[str, Any]]:
        apps = [
            app
            for app in context["available_apps"]
            if not place or place.is_project or app["app_label"] != _PROJECT_APP
        ]
        models = [model for app in apps for model in app["models"] if model["admin_url"]]
        index = reverse("admin:index", current_app=self.name)
        tabs = [{"name": "Overview", "url": index, "current": request.path == index}]
        for name, listed in sorted(self._by_tab(models).items(), key=lambda pair: _ORDER.get(pair[0], len(_ORDER))):
            current = any(request.path.startswith(model["admin_url"]) for model in listed)
            first = next(model for model in listed if _name_of(model) == name)
            name_of_tab = getattr(self._registry[first["model"]], "tab_name", "") or _title(first)
            count = getattr(self._registry[first["model"]], "tab_count", None)
            tab = {"name": name_of_tab, "url": first["admin_url"], "current": current}
            tabs.append({**tab, "count": count() if count and place else 0})
        return tabs

    def _by_tab(self, models: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
        """Group the lists by the tab they share; most have a tab of their own."""
        grouped: dict[str, list[dict[str, Any]]] = {}
        for model in models:
            tab = getattr(self._registry[model["model"]], "tab", "") or _name_of(model)
            grouped.setdefault(tab, []).append(model)
        return grouped

    def get_log_entries(self, request: HttpRequest) -> Any:
        return ()  # an object's history is its events; Django's admin log is never written

    def index(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> TemplateResponse:
        from memoryhub.web.dashboard import overview

        return super().index(request, {**overview(), **(extra_context or {})})

    def app_index(self, request: HttpRequest, app_label: str, extra_context: dict[str, Any] | None = None) -> Any:
        return redirect("admin:index")

    def password_change(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        raise Http404("this hub has no passwords")

    def password_change_done(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> Any:
        raise Http404("this hub has no passwords")

    def describe(self, request: HttpRequest) -> HttpResponse:
        from memoryhub.web.description_page import describe_page

        return describe_page(
            request, {**self.each_context(request), "title": f"Describe {Place.of(current_store()).this}"}
        )

    def settings(self, request: HttpRequest) -> HttpResponse:
        from memoryhub.web.settings_page import settings_page

        return settings_page(request, {**self.each_context(request), "title": "Settings"})

    def secrets(self, request: HttpRequest) -> HttpResponse:
        from memoryhub.web.secrets_page import secrets_page

        return secrets_page(request, {**self.each_context(request), "title": "Secrets"})

    def task(self, request: HttpRequest, task_id: str) -> HttpResponseBase:
        from memoryhub.web.live import show_task

        return show_task(request, task_id, self.each_context(request))

    def verify_chain(self, request: HttpRequest) -> HttpResponse:
        from memoryhub.ops.chain_state import check_chain

        check = check_chain()
        sentence = check.finding[:1].upper() + check.finding[1:]
        (messages.success if check.ok else messages.error)(request, f"{sentence}.")
        return redirect("admin:core_rawevent_changelist")

    def replay(self, request: HttpRequest) -> HttpResponse:
        """Show the log at a position; with ``fragment``, only the part that ``hub.js`` replaces."""
        from memoryhub.web.replay_page import replay_at

        replayed = replay_at(request.GET.get("position", ""))
        if "fragment" in request.GET and replayed["last"]:
            return TemplateResponse(request, "admin/core/rawevent/replayed.html", replayed)
        context = {**self.each_context(request), "title": "Replay", **replayed}
        return TemplateResponse(request, "admin/core/rawevent/replay.html", context)

    def past(self, request: HttpRequest) -> HttpResponse:
        """Show the store as of a position; without one, redirect to the replay."""
        from memoryhub.web.as_of_page import store_as_of

        position = request.GET.get("position", "")
        if not (position.isascii() and position.isdecimal() and len(position) <= 15):
            return redirect("admin:replay")
        query = {"question": request.GET.get("q", ""), "cursor": request.GET.get("cursor", "")}
        store = store_as_of(position=int(position), **query)
        context = {**self.each_context(request), "title": f"As of #{position}", **store}
        return TemplateResponse(request, "admin/core/rawevent/past.html", context)

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


def _name_of(model: dict[str, Any]) -> str:
    name: str = model["model"]._meta.label_lower
    return name.replace(".", "_")


def _title(model: dict[str, Any]) -> str:
    return "Log" if model["object_name"] == "RawEvent" else str(model["name"])
