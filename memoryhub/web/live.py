"""The streams that pages follow: one for each store, and one for the jobs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect
from django.views.decorators.http import require_safe

from memoryhub import env
from memoryhub.core import log
from memoryhub.core.permissions import Act, may
from memoryhub.core.stores.store import StoreId, current_store, use_store
from memoryhub.ops.serving.live import Source

# Sent by ``live.js`` when it fetches a page again
HEADER = "Hub-Live"


class LiveResponse(HttpResponse):
    """The head of a stream; the bridge to the ASGI server sends its messages (decision 57)."""

    # So that Django does not add a length
    streaming = True

    def __init__(self, source: Source) -> None:
        super().__init__(content_type="text/event-stream; charset=utf-8", headers={"Cache-Control": "no-store"})
        self.source = source


@require_safe
def follow_store(_request: HttpRequest) -> HttpResponseBase:
    return LiveResponse(_source_of(current_store()))


@require_safe
def follow_jobs(request: HttpRequest) -> HttpResponseBase:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    return LiveResponse(Source("jobs", _files_of_jobs, jobs_version))


def _source_of(store: StoreId) -> Source:
    def files() -> list[Path]:
        return [store.path, store.path.with_name(f"{store.path.name}-wal")]

    def version() -> str:
        with use_store(store):
            return store_version()

    return Source(store.alias, files, version)


def store_version() -> str:
    """Return what changes with every event of the current store."""
    return str(log.head()[0])


def _files_of_jobs() -> Iterator[Path]:
    home = env.home()
    yield from (home / name for name in ("hub.db", "hub.db-wal", "jobs.db", "jobs.db-wal"))
    yield from sorted((home / "locks").glob("*"))


def jobs_version() -> str:
    """Return what changes with every run of a job, its progress, and every schedule."""
    stamps = [(path.name, path.stat().st_mtime_ns) for path in _files_of_jobs() if path.exists()]
    return hashlib.sha256(repr(stamps).encode()).hexdigest()[:16]
