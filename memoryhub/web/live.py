"""The streams that pages follow: one for each store, and one for the jobs."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.auth.models import User
from django.contrib.messages.storage.base import BaseStorage, Message
from django.contrib.sessions.models import Session
from django.db import close_old_connections
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from memoryhub.core import clock
from memoryhub.core.background import UNKNOWN_TASK, find_task
from memoryhub.core.permissions import Act, current_place, may
from memoryhub.core.stores.store import current_store
from memoryhub.ops.jobs.status import source_of_jobs
from memoryhub.ops.serving.live import LiveSource, source_of_store

# Sent by ``live.js`` when it fetches a page again
HEADER = "Hub-Live"


class NoMessages(BaseStorage):
    """Leaves the messages to the page that the person opens next, and takes none for a page that is fetched again."""

    def _get(self, *_args: Any, **_kwargs: Any) -> tuple[list[Message], bool]:
        return [], True

    def _store(self, *_args: Any, **_kwargs: Any) -> list[Message]:
        return []


class LiveResponse(StreamingHttpResponse):
    """The head of a stream; the bridge to the ASGI server sends its messages (decision 57)."""

    def __init__(self, request: HttpRequest, source: LiveSource) -> None:
        super().__init__([], content_type="text/event-stream; charset=utf-8", headers={"Cache-Control": "no-store"})
        self.source = source
        self.person = request.user.get_username()
        self._session_key = request.session.session_key
        self._place = current_place()

    def may_follow(self) -> bool:
        """Return whether the person is still signed in and still sees the place."""
        close_old_connections()  # called outside of requests
        sessions = Session.objects.filter(session_key=self._session_key, expire_date__gt=clock.now())
        if self._session_key and not sessions.exists():
            return False
        person = User.objects.filter(username=self.person).first()
        return person is not None and may(person, Act.VIEW, place=self._place)


@require_GET
def follow_store(request: HttpRequest) -> HttpResponseBase:
    return LiveResponse(request, source_of_store(current_store()))


@require_GET
def follow_jobs(request: HttpRequest) -> HttpResponseBase:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    return LiveResponse(request, source_of_jobs())


@require_GET
def follow_task(request: HttpRequest, task_id: str) -> HttpResponseBase:
    task = find_task(task_id)
    if task is None:
        return HttpResponse(status=204)  # the browser does not connect again
    return LiveResponse(request, LiveSource(f"task {task.id}", lambda: task.version, lambda: task.version))


@never_cache
@require_safe
def show_task(request: HttpRequest, task_id: str, context: dict[str, Any]) -> HttpResponseBase:
    """Show the progress of long work; when it has ended, redirect to the page that shows its result."""
    task = find_task(task_id)
    if task is None:
        messages.warning(request, UNKNOWN_TASK)
        return redirect("admin:index")
    if task.ended and HEADER not in request.headers:
        if task.actor == request.user.get_username():
            for level, text in task.messages:
                messages.add_message(request, level, text)
        return redirect(task.page)
    request.live_version = task.version  # type: ignore[attr-defined]
    page = {"title": task.title, "task": task, "live_url": reverse("admin:live_task", args=[task.id])}
    return TemplateResponse(request, "memoryhub/task.html", {**context, **page})
