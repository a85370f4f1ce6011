"""How the search index stands: what can be found, by words and by meaning, and when the jobs last ran."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django_q.models import Task

from memories.models import EmbeddingModel, SearchDocument, Vector
from memories.search.index import has_full_text, index_problem
from memoryhub.core import log
from memoryhub.core.admin import cells
from memoryhub.core.models import ProjectionOffset

_JOBS = {"embed texts": "texts embedded", "count uses": "uses counted"}
_PLURALS = {"memory": "memories"}
_CURSOR = "embeddings-"


def index_health() -> dict[str, Any]:
    """Return what the page says of the index, by a fixed number of queries."""
    counted = dict(SearchDocument.objects.values_list("source").annotate(documents=Count("pk")).order_by("-documents"))
    by_source = [cells.counted(count, source, _PLURALS.get(source, "")) for source, count in counted.items()]
    return {
        "documents": sum(counted.values()),
        "by_source": by_source,
        "full_text": has_full_text(),
        "problem": index_problem(),
        "models": _models(sum(counted.values())),
        "jobs": _jobs(),
    }


def _models(documents: int) -> list[dict[str, Any]]:
    models = list(EmbeddingModel.objects.order_by("id"))
    if not models:
        return []
    vectors = dict(Vector.objects.values_list("model_id").annotate(count=Count("document_id")))
    followed = dict(ProjectionOffset.objects.filter(projector__startswith=_CURSOR).values_list("projector", "position"))
    head = log.head()[0]
    return [
        {
            "name": model.name,
            "version": model.version,
            "dimensions": model.dimensions,
            "complete": model.complete,
            "embedded": vectors.get(model.pk, 0),
            "documents": documents,
            "behind": max(0, head - followed.get(f"{_CURSOR}{model.pk}", 0)),
        }
        for model in models
    ]


def _jobs() -> list[dict[str, Any]]:
    """Return when each job of the index last ran, if ever, and how it ended."""
    found: dict[str, Task] = {}
    for task in Task.objects.filter(group__in=_JOBS).order_by("-stopped")[:20]:
        found.setdefault(task.group, task)
    ended = [(label, found[name]) for name, label in _JOBS.items() if name in found]
    return [{"label": label, "at": task.stopped, "success": task.success} for label, task in ended]
