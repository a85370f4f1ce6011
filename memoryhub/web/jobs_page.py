"""The page of background jobs: status, schedule and a button to run one."""

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
from memoryhub.core.background import running_tasks
from memoryhub.core.errors import Forbidden, HubError, Invalid
from memoryhub.core.jobs import Every, find_job
from memoryhub.core.permissions import Act, may, reaches, require
from memoryhub.core.text import as_sentence
from memoryhub.core.validation import command_from
from memoryhub.models import Subject
from memoryhub.ops.jobs.running import worker_is_running
from memoryhub.ops.jobs.schedules import AT_A_TIME, HOWS, JobPlan, change_plan, default_of
from memoryhub.ops.jobs.status import JobStatus, OverOne, ask_worker, job_statuses, jobs_version
from memoryhub.registry.access_history import history_of
from memoryhub.web.pages import StorePlace, hub_page

_BADGES = {"ok": "settled", "failed": "broken", "interrupted": "incomplete", "running": "active", "queued": "review"}


@never_cache
@require_safe
def show_jobs(request: HttpRequest) -> HttpResponse:
    if not may(request.user, Act.VIEW):
        return redirect(settings.LOGIN_URL)
    request.live_version = jobs_version()  # type: ignore[attr-defined]
    administers = may(request.user, Act.ADMINISTER)
    context = {
        "jobs": list(map(_job_context, job_statuses())),
        "tasks": [(task, StorePlace.of(task.store)) for task in running_tasks() if reaches(task.store.place)],
        "worker": worker_is_running(),
        "may_run": administers,
    }
    if administers:
        context["history"] = history_of(Subject.JOB, before=request.GET.get("before", ""))
    return render(request, "memoryhub/jobs.html", context)


@never_cache
@require_POST
def run_now(request: HttpRequest) -> HttpResponse:
    try:
        require(request.user, Act.ADMINISTER)
        queued = ask_worker(
            job=find_job(request.POST.get("job", "")),
            alias=request.POST.get("store"),
            asked_by=request.user.get_username(),
        )
        messages.success(request, queued)
    except (Forbidden, Invalid) as error:
        messages.error(request, as_sentence(error.message))
    except HubError as error:
        messages.warning(request, as_sentence(error.message))
    return redirect("jobs")


@hub_page(Act.ADMINISTER)
@require_POST
def plan_job(request: HttpRequest) -> HttpResponse:
    form = {name: request.POST.get(name, "").strip() or None for name in JobPlan.model_fields}
    if form["every"] not in AT_A_TIME:
        form["at"] = None  # the form always sends this field
    try:
        plan = change_plan(command=command_from(JobPlan, form))
    except HubError as error:
        messages.error(request, as_sentence(error.message))
        return redirect("jobs")
    job = find_job(str(form["job"]))
    verb = "is" if plan.described.startswith("switched") else "runs"
    text = f"The job {job.name} {verb} {plan.described}"
    if plan.next_run:
        text += f"; its next run is {_ahead(plan.next_run)}"
    messages.success(request, f"{text}.")
    return redirect(f"{reverse('jobs')}#{job.slug}")


def _job_context(status: JobStatus) -> dict[str, Any]:
    stores = list(map(_store_context, status.stores))
    count = sum(1 for store in status.stores if store.target.store)
    and_the_hub = " and the hub" if count < len(status.stores) else ""
    facts = {name: getattr(status, name) for name in ("job", "result", "last", "now", "runs", "plan")}
    return {
        **facts,
        "badge": _BADGES.get(status.result, status.result),
        "next": "switched off" if status.is_off else _ahead(status.next_run),
        "hows": _hows(status),
        "stores": stores,
        "of_hub": len(stores) == 1 and not stores[0]["target"].store,
        "counted": f"{counted(count, 'store')}{and_the_hub}",
        "failures": [store for store in stores if store["result"] in ("failed", "interrupted")],
    }


def _hows(status: JobStatus) -> list[dict[str, Any]]:
    if status.job.every is Every.DEMAND:
        return []
    labels = {"off": "switched off", "15-minutes": "every 15 minutes", "6-hours": "every 6 hours"}
    default = default_of(status.job)
    choices = []
    for how in HOWS:
        label = labels.get(how, f"every {how}")
        if how == default:
            label += " (default)"
        if how != "default":
            choices.append({"value": how, "label": label, "chosen": how == status.plan.every})
    return choices


def _store_context(store: OverOne) -> dict[str, Any]:
    context = {name: getattr(store, name) for name in ("target", "result", "now", "last")}
    context["badge"] = _BADGES.get(store.result, store.result)
    if store.last:
        context["lasted"] = lasted(store.last.started_at, store.last.ended_at)
        context["message"] = store.last.message.replace("`", "") or "Nothing to do"
    return context


def _ahead(moment: datetime | None) -> str:
    if moment is None:
        return ""
    minutes = int((moment - clock.now()).total_seconds()) // 60 + 1
    if minutes < 1:
        return "due now"
    if minutes < 120:
        return f"in {counted(minutes, 'minute')}"
    return f"in {counted(minutes // 60, 'hour')}"
