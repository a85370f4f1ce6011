"""The page of the jobs: how each one stands, and a button that has it done now."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from memoryhub.core import clock
from memoryhub.core.admin.cells import counted, lasted
from memoryhub.core.errors import Forbidden, HubError, Invalid
from memoryhub.core.jobs import Every, find_job
from memoryhub.core.permissions import Act, may, require
from memoryhub.core.validation import command_from
from memoryhub.models import Subject
from memoryhub.ops.jobs import worker
from memoryhub.ops.jobs.planning import AT_A_TIME, HOWS, JobPlan, change_plan, default_of
from memoryhub.ops.jobs.requests import ask_worker
from memoryhub.ops.jobs.status import JobStatus, OverOne, job_statuses
from memoryhub.registry.access_history import history_of
from memoryhub.web.hub_pages import hub_page

_BADGES = {"ok": "settled", "failed": "broken", "interrupted": "incomplete", "running": "active", "queued": "review"}


@never_cache
@require_safe
def show_jobs(request: HttpRequest) -> HttpResponse:
    """Show the jobs; with ``fragment``, only the part of the page that changes while they run."""
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    administers = may(request.user, Act.ADMINISTER)
    shown = [_shown(each) for each in job_statuses()]
    context = {
        "jobs": shown,
        "busy": any(job["result"] in ("running", "queued") for job in shown),
        "worker": worker.is_there(),
        "may_run": administers,
        "history": history_of(Subject.JOB, before=request.GET.get("before", "")) if administers else None,
    }
    page = "memoryhub/jobs_list.html" if "fragment" in request.GET else "memoryhub/jobs.html"
    return render(request, page, context)


@never_cache
@require_POST
def run_now(request: HttpRequest) -> HttpResponse:
    """Ask the worker for a run, and say what came of it."""
    try:
        require(request.user, Act.ADMINISTER)
        told = ask_worker(
            job=find_job(request.POST.get("job", "")),
            alias=request.POST.get("store"),
            asked_by=request.user.get_username(),
        )
        messages.success(request, told)
    except (Forbidden, Invalid) as error:
        messages.error(request, _sentence(error.message))
    except HubError as error:
        messages.warning(request, _sentence(error.message))
    return redirect("jobs")


@hub_page(Act.ADMINISTER)
@require_POST
def plan_job(request: HttpRequest) -> HttpResponse:
    """Change when a job is run by itself, and say when that is next."""
    form = {name: request.POST.get(name, "").strip() or None for name in JobPlan.model_fields}
    if form["every"] not in AT_A_TIME:
        form["at"] = None  # the field is there all the same, and keeps the time that there was
    try:
        plan = change_plan(command=command_from(JobPlan, form))
    except HubError as error:
        messages.error(request, _sentence(error.message))
        return redirect("jobs")
    job = find_job(str(form["job"]))
    due = f"; its next run is {_ahead(plan.next_run)}" if plan.next_run else ""
    messages.success(request, f"The job {job.name} is {_run(plan.described)}{due}.")
    return redirect(f"{reverse('jobs')}#{job.slug}")


def _run(described: str) -> str:
    return described if described.startswith("switched") else f"run {described}"


def _shown(standing: JobStatus) -> dict[str, Any]:
    last, now = standing.last, standing.now
    stores = [_shown_store(each) for each in standing.stores]
    return {
        "job": standing.job,
        "result": standing.result,
        "badge": _BADGES.get(standing.result, standing.result),
        "last": last,
        "now": now,
        "next": "switched off" if standing.is_off else _ahead(standing.next_run),
        "runs": standing.runs,
        "plan": standing.plan,
        "hows": _hows(standing),
        "stores": stores,
        "of_hub": len(stores) == 1 and not stores[0]["target"].store,
        "counted": _counted(standing),
        "failures": [each for each in stores if each["result"] in ("failed", "interrupted")],
    }


def _hows(standing: JobStatus) -> list[dict[str, Any]]:
    """Return how often a job may be run, as its form offers it; nothing for one that is run on demand alone."""
    if standing.job.every is Every.DEMAND:
        return []
    said = {"off": "switched off", "15-minutes": "every 15 minutes", "6-hours": "every 6 hours"}
    usual, now = default_of(standing.job), standing.plan.every
    return [
        {
            "value": how,
            "label": said.get(how, f"every {how}") + (" (as it is meant to be)" if how == usual else ""),
            "chosen": how == now,
        }
        for how in HOWS
        if how != "default"
    ]


def _shown_store(each: OverOne) -> dict[str, Any]:
    last = each.last
    return {
        "target": each.target,
        "result": each.result,
        "badge": _BADGES.get(each.result, each.result),
        "now": each.now,
        "last": last,
        "lasted": lasted(last.started_at, last.ended_at) if last else "",
        "message": (last.message.replace("`", "") or "nothing to do") if last else "",
    }


def _counted(standing: JobStatus) -> str:
    stores = [each for each in standing.stores if each.target.store]
    return counted(len(stores), "store") + (" and the hub" if len(stores) < len(standing.stores) else "")


def _ahead(moment: datetime | None) -> str:
    if moment is None:
        return ""
    minutes = int((moment - clock.now()).total_seconds()) // 60 + 1
    if minutes < 1:
        return "due now"
    if minutes < 120:
        return f"in {counted(minutes, 'minute')}"
    return f"in {counted(minutes // 60, 'hour')}"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
