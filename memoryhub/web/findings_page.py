"""The findings about a project: a page of their own, and the head of the overview after an import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.safestring import SafeString

from governance.findings.schemas import FindingEvidence, FindingKind, FindingsReport, ProjectFinding
from governance.findings.selectors import project_findings
from governance.imports import Batch
from memoryhub.core import clock, log
from memoryhub.core.admin import page_of_entity
from memoryhub.core.admin.cells import with_code
from memoryhub.core.events.event_types import GOVERNANCE, names_where
from memoryhub.core.log.read import erased_after
from memoryhub.core.stores.store import Scope, StoreId, current_store

# How long after an import the overview begins with the findings
_NEWS = timedelta(days=14)
# Reading a large store takes a second: a report is shown again for so long, unless something was removed since
_RENEWED_AFTER = timedelta(minutes=5)
_MOST_CACHED = 8
_ICONS = {
    FindingKind.ERROR: "cross",
    FindingKind.COMMAND: "command",
    FindingKind.FILE: "edit",
    FindingKind.DECISIONS: "decision",
    FindingKind.SECRETS: "secret",
}


@dataclass(frozen=True, slots=True)
class _CachedReport:
    report: FindingsReport
    # The end of the log that it was read to
    position: int
    digest: str
    at: datetime


_reports: dict[StoreId, _CachedReport] = {}


@dataclass(frozen=True, slots=True)
class FindingRow:
    """A finding as the page shows it."""

    finding: ProjectFinding
    sentence: SafeString
    icon: str
    # Pages of the evidence, and of its session, "" without one
    evidence: list[tuple[FindingEvidence, str, str]]
    # Where to look next
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Receipt:
    report: FindingsReport
    rows: list[FindingRow]


def findings_page(request: HttpRequest, context: dict[str, Any]) -> HttpResponse:
    if current_store().scope is not Scope.PROJECT:
        raise Http404("findings are about the sessions of a project")
    return TemplateResponse(request, "admin/findings.html", {**context, "receipt": receipt()})


def latest_receipt(batches: Sequence[Batch]) -> Receipt | None:
    """Return the findings for the overview, if there was an import in the past two weeks, and they show something."""
    if current_store().scope is not Scope.PROJECT:
        return None
    since = clock.now() - _NEWS
    if not any(batch.began_at >= since and not batch.is_undone for batch in batches):
        return None
    latest = receipt()
    return latest if latest.rows else None


def receipt() -> Receipt:
    report = _current_report()
    return Receipt(report, list(map(_row, report.findings)))


def _current_report() -> FindingsReport:
    store, now = current_store(), clock.now()
    cached = _reports.pop(store, None)
    if cached is None or not _is_current(cached, now):
        position, digest = log.head()
        cached = _CachedReport(project_findings(), position, digest, now)
    _reports[store] = cached
    while len(_reports) > _MOST_CACHED:
        _reports.pop(next(iter(_reports)), None)
    return cached.report


def _is_current(cached: _CachedReport, now: datetime) -> bool:
    # A store of the same name may be another one: deleted and created again, or restored
    if log.digest_at(cached.position) != cached.digest:
        return False
    if abs(now - cached.at) >= _RENEWED_AFTER or erased_after(cached.position):
        return False
    hiding = log.events().window(after=cached.position).of_type(*names_where(lambda kind: kind.group is GOVERNANCE))
    return not hiding.exists()


def _row(finding: ProjectFinding) -> FindingRow:
    evidence = [(item, page_of_entity(item.type, item.id), _session_page(item)) for item in finding.evidence]
    label, url = _next_page(finding)
    return FindingRow(finding, with_code(finding.sentence), _ICONS[finding.kind], evidence, label, url)


def _session_page(item: FindingEvidence) -> str:
    return reverse("admin:stream", args=[f"session:{item.session_id}"]) if item.session_id else ""


def _next_page(finding: ProjectFinding) -> tuple[str, str]:
    match finding.kind:
        case FindingKind.FILE:
            return "Blame", reverse("admin:blame", query={"file": finding.subject})
        case FindingKind.DECISIONS:
            return "Open the inbox", reverse("admin:inbox")
        case FindingKind.SECRETS:
            return "Secrets", reverse("admin:secrets")
    return "Search for it", reverse("admin:memories_searchdocument_changelist", query={"q": finding.subject})
