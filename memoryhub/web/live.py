"""The streams that pages follow: one for each store, and one for the jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.contrib.messages.storage.base import BaseStorage, Message
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET, require_safe

from memories.uses.notes import notes_files, notes_size
from memoryhub import env
from memoryhub.core import log
from memoryhub.core.backends.selected import stores
from memoryhub.core.background import find_task, running_tasks
from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.ops.serving.live import Source, file_stamp

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

    def __init__(self, source: Source) -> None:
        super().__init__([], content_type="text/event-stream; charset=utf-8", headers={"Cache-Control": "no-store"})
        self.source = source


@require_GET
def follow_store(_request: HttpRequest) -> HttpResponseBase:
    return LiveResponse(_source_of(current_store()))


@require_GET
def follow_jobs(request: HttpRequest) -> HttpResponseBase:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    return LiveResponse(Source("jobs", _stamp_of_jobs, jobs_version))


def _source_of(store: StoreId) -> Source:
    files = stores.watched(store)

    def stamp() -> object:
        return file_stamp([*files, *notes_files(store)])

    def version() -> str:
        with use_store(store):
            return store_version()

    return Source(store.alias, stamp, version)


def store_version() -> str:
    """Return what changes with every event of the current store, and every read by an agent."""
    return f"{log.head()[0]}-{notes_size(current_store())}"


def _files_of_jobs() -> Iterator[Path]:
    home = env.home()
    yield from (home / name for name in ("hub.db", "hub.db-wal", "jobs.db", "jobs.db-wal"))
    yield from sorted((home / "locks").glob("*"))


def _stamp_of_jobs() -> object:
    return file_stamp(_files_of_jobs()), [task.version for task in running_tasks()]


def jobs_version() -> str:
    """Return what changes with every run of a job, its progress, every schedule, and every task."""
    files = [stamp for stamp in file_stamp(_files_of_jobs()) if stamp[0]]
    tasks = [(task.id, task.version) for task in running_tasks()]
    return hashlib.sha256(repr((files, tasks)).encode()).hexdigest()[:16]


@require_GET
def follow_task(_request: HttpRequest, task_id: str) -> HttpResponseBase:
    task = find_task(task_id)
    if task is None:
        return HttpResponse(status=204)  # the browser does not connect again
    return LiveResponse(Source(f"task {task.id}", lambda: task.version, lambda: task.version))


@never_cache
@require_safe
def show_task(request: HttpRequest, task_id: str, context: dict[str, Any]) -> HttpResponseBase:
    """Show the progress of long work; when it has ended, redirect to the page that shows its result."""
    task = find_task(task_id)
    if task is None:
        messages.warning(request, "The hub was started again since. The log shows what was done.")
        return redirect("admin:index")
    if task.ended and HEADER not in request.headers:
        if task.actor == request.user.get_username():
            for level, text in task.messages:
                messages.add_message(request, level, text)
        return redirect(task.page)
    request.live_version = task.version  # type: ignore[attr-defined]
    shown = {"title": task.title, "task": task, "live_url": reverse("admin:live_task", args=[task.id])}
    return TemplateResponse(request, "memoryhub/task.html", {**context, **shown})
