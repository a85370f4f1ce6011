"""The page of roll-backs: the selection, its downstream effects, the action, and past roll-backs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect
from django.urls import URLPattern, path

from governance.models import Rollback, RollbackAction
from governance.retention.candidates import words_of
from governance.rollback.schemas import Group, Include, RollbackMake, RollbackPlan, RollbackUndo, RollbackView, Thing
from governance.rollback.service import event_sources, preview, roll_back, undo_rollback
from governance.rollback.tracing import groups
from memoryhub.core import clock, log
from memoryhub.core.admin import HubModelAdmin, cells, needs, page_of_entity
from memoryhub.core.admin.cells import counted
from memoryhub.core.admin.schema_form import SchemaForm
from memoryhub.core.background import Progress, is_long, start_task
from memoryhub.core.entities import find_entities
from memoryhub.core.errors import ConfirmationRequired, HubError
from memoryhub.core.events.rollback import effects
from memoryhub.core.permissions import Act
from memoryhub.core.text import as_sentence

_ACTIONS = (
    (
        RollbackAction.QUARANTINE,
        "Quarantine: hide the items from lists, searches and packs until you undo the roll-back",
    ),
    (RollbackAction.UNDO, "Undo: reverse changes, delete written memories, quarantine the rest"),
)
_INCLUDE = (
    (Include.CHANGED_SINCE, "Items that others have changed since"),
    (Include.BUILT_ON, "Items that others built on it"),
    (Include.INFLUENCED, "Items that may have been influenced"),
)
_POINT = {"placeholder": "2026-11-20 14:00, or #412", "autocomplete": "off"}
# These fields are outside of the form's element, next to the preview.
_OF_FORM = {"form": "choose"}

# The fields that select events; the others choose the action.
SELECTING = ("session_id", "actor", "source", "since", "until", "include_people")


class RollbackForm(SchemaForm[RollbackPlan]):
    schema = RollbackPlan
    session_id = forms.ChoiceField(required=False, label="Session")
    actor = forms.ChoiceField(required=False, label="Client")
    source = forms.ChoiceField(required=False, label="Source")
    since = forms.CharField(required=False, max_length=40, label="From", widget=forms.TextInput(attrs=_POINT))
    until = forms.CharField(
        required=False,
        max_length=40,
        label="Until",
        help_text="A time in your time zone, or a position in the log.",
        widget=forms.TextInput(attrs=_POINT),
    )
    include_people = forms.BooleanField(required=False, label="Include changes that people made in the admin")
    action = forms.ChoiceField(
        required=False,
        choices=_ACTIONS,
        initial=RollbackAction.QUARANTINE,
        widget=forms.RadioSelect(attrs=_OF_FORM),
        label="Action",
    )
    include = forms.MultipleChoiceField(
        required=False, choices=_INCLUDE, widget=forms.CheckboxSelectMultiple(attrs=_OF_FORM), label="Also include"
    )

    def __init__(self, data: QueryDict | None, sources: Mapping[str, Iterable[tuple[str, int, str]]]) -> None:
        if data is not None and not data.get("action"):
            data = data.copy()
            data["action"] = RollbackAction.QUARANTINE
        super().__init__(data)
        self._fill("session_id", sources["session_id"], "any session")
        self._fill("actor", sources["actor"], "any client")
        self._fill("source", sources["source"], "any source")

    def _fill(self, name: str, sources: Iterable[tuple[str, int, str]], any_label: str) -> None:
        choices = [("", any_label)]
        for source, events, last_at in sources:
            last = clock.minute(last_at).replace("T", " ")
            choices.append((source, f"{source} · {counted(events, 'event')}, last {last}"))
        self.fields[name].choices = choices  # type: ignore[attr-defined]

    def selecting(self) -> list[Any]:
        return [self[name] for name in SELECTING]

    def values(self) -> dict[str, Any]:
        ids = {name: self.data.getlist(name) for name in ("also", "leave")}  # type: ignore[attr-defined]
        return {name: value for name, value in (self.cleaned_data | ids).items() if value}


_LATEST = 20
_SHOWN = 200
# Items of a roll-back that takes longer than a person should wait
_LONG_STEPS = 200
_CHANGED = "The log has changed since the preview. Check the new preview and confirm it. Nothing was changed."


@admin.register(Rollback)
class RollbackAdmin(HubModelAdmin):
    def get_urls(self) -> list[URLPattern]:
        urls = [
            path("run/", self._governed(self.run_view), name="governance_rollback_run"),
            path("<int:rollback_id>/undo/", self._governed(self.undo_view), name="governance_rollback_undo"),
        ]
        return [*urls, *super().get_urls()]

    def _governed(self, view: Any) -> Any:
        return self.admin_site.admin_view(needs(Act.GOVERN, view))

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        return self._show_preview(request, request.GET)

    def run_view(self, request: HttpRequest) -> HttpResponse:
        form = RollbackForm(request.POST or None, event_sources())
        plan = form.command()
        if plan is None:
            return redirect(self.url("changelist"))
        confirmed = {name: request.POST.get(name, "") for name in ("confirm_token", "reason")}
        command = RollbackMake(**plan.model_dump(), **confirmed)
        try:
            if is_long() and sum(preview(command=plan).counts.values()) > _LONG_STEPS:
                return self._later(lambda _: roll_back(command=command))
            rollback = roll_back(command=command)
        except ConfirmationRequired:
            return self._show_preview(request, request.POST, unconfirmed=_CHANGED)
        except HubError as error:
            return self._show_preview(request, request.POST, problem=as_sentence(error.message))
        for level, text in _described(rollback):
            messages.add_message(request, level, text)
        return redirect(self.url("changelist"))

    def _later(self, work: Callable[[Progress], RollbackView]) -> HttpResponse:
        page = self.url("changelist")
        task = start_task("Roll-back", page=page, work=work, describe=_described)
        return redirect("admin:task", task.id)

    def undo_view(self, request: HttpRequest, rollback_id: int) -> HttpResponse:
        if request.method != "POST":
            return redirect(self.url("change", rollback_id))
        try:
            undone = undo_rollback(command=RollbackUndo(id=rollback_id, reason=request.POST.get("reason", "")))
        except HubError as error:
            messages.error(request, as_sentence(error.message))
            return redirect(self.url("changelist"))
        messages.success(request, f"Undid roll-back #{undone.id}.")
        if undone.undone_left:
            unrestored = cells.counted(len(undone.undone_left), "item")
            messages.warning(request, f"{unrestored} not restored. The page of the roll-back lists them.")
        return redirect(self.url("changelist"))

    def change_view(self, request: HttpRequest, object_id: str, *_: Any, **_options: Any) -> HttpResponse:
        rollback = self.find(request, object_id)
        context = {
            "title": f"Roll-back #{rollback.pk}",
            "chosen": selection_text(rollback.selection),
            "steps": step_rows(rollback.steps[:_SHOWN]),
            "steps_cut": max(0, len(rollback.steps) - _SHOWN),
            "left": left_rows(rollback.left[:_SHOWN]),
            "undone_left": left_rows(rollback.undone_left[:_SHOWN]),
        }
        return self.page(request, "admin/governance/rollback_made.html", rollback, **context)

    def _show_preview(self, request: HttpRequest, data: QueryDict, **context: Any) -> HttpResponse:
        form = RollbackForm(data or None, event_sources())
        plan = form.command()
        previewed = _previewed(plan) if plan else {}
        latest = list(map(_rollback_row, Rollback.objects.order_by("-id")[:_LATEST]))
        chosen: list[tuple[str, str]] = []
        for name in data:
            if name not in ("csrfmiddlewaretoken", "confirm_token", "reason"):
                chosen += [(name, value) for value in data.getlist(name)]
        common = {"title": "Roll back", "form": form, "latest": latest, "chosen": chosen}
        return self.page(request, "admin/governance/rollback.html", None, **{**common, **previewed, **context})


def _previewed(plan: RollbackPlan) -> dict[str, Any]:
    try:
        answer = preview(command=plan)
    except HubError as error:
        return {"problem": as_sentence(error.message)}
    total = sum(answer.counts.values())
    verb = "Quarantine" if answer.action == "quarantine" else "Undo"
    return {
        "preview": answer,
        "direct": [_group_row(group, plan) for group in answer.trace.direct],
        "derived": [_group_row(group, plan) for group in answer.trace.derived],
        "left": left_rows([item.model_dump() for item in answer.left]),
        "done": counts_text(answer.counts),
        "total": total,
        "act_label": f"{verb} {cells.counted(total, 'item')}",
    }


def _described(rollback: RollbackView) -> list[tuple[int, str]]:
    text = f"Made roll-back #{rollback.id}: {counts_text(rollback.counts)}. You can undo it below."
    return [(messages.SUCCESS, text)]


def _rollback_row(rollback: Rollback) -> dict[str, Any]:
    counts = Counter(step["do"] for step in rollback.steps)
    return {"row": rollback, "chosen": selection_text(rollback.selection), "done": counts_text(counts)}


# Downstream groups whose items can be included one by one.
_ALSO = frozenset({"built_on", "influenced", "relations", "told_sessions"})
_DEEPEST = 6


def _group_row(group: Group, plan: RollbackPlan) -> dict[str, Any]:
    is_derived = any(thing.how for thing in group.shown)
    if is_derived:
        field, can_choose, checked = "also", group.name in _ALSO, set(plan.also)
    else:
        field, can_choose, checked = "leave", groups()[group.name].can_leave, set(plan.leave)
    things = _as_tree(group.shown) if group.name == "built_on" else group.shown
    return {
        "group": group,
        "field": field if can_choose else "",
        "more": group.count - len(group.shown),
        "rows": [_thing_row(thing, group.name, checked=thing.id in checked) for thing in things],
    }


def _thing_row(thing: Thing, group: str, *, checked: bool) -> dict[str, Any]:
    title = thing.title or thing.type
    if thing.type == "relation" or title.startswith(f"{thing.type}."):
        title = _as_words(title)
    return {
        "thing": thing,
        "url": _address(thing, group),
        "checked": checked,
        "title": title,
        "type": thing.type.capitalize(),
        "level": min(max(thing.depth - 1, 0), _DEEPEST),
        "how": thing.how.replace("_", " "),
    }


def _as_words(name: str) -> str:
    return name.replace(".", " ").replace("_", " ")


def _as_tree(things: Sequence[Thing]) -> list[Thing]:
    """Return items in depth-first order: each follows the one that it depends on."""
    children: dict[int | None, list[Thing]] = {}
    for thing in things:
        children.setdefault(thing.via, []).append(thing)
    ids = {thing.id for thing in things}
    stack = [thing for thing in reversed(things) if thing.via not in ids]
    ordered: list[Thing] = []
    while stack:
        thing = stack.pop()
        ordered.append(thing)
        stack += reversed(children.get(thing.id, ()))
    return ordered


def _address(thing: Thing, group: str) -> str:
    # What no group declares is an event, whatever its type's first part names
    is_entity = group != "other" and thing.event == thing.id
    if is_entity or thing.type in ("memory", "decision", "session"):
        return page_of_entity(thing.type, thing.id)
    return page_of_entity("", thing.event)


def counts_text(counts: Mapping[str, int]) -> str:
    """Return the effects in words: ``3 quarantined, 1 deleted``."""
    return ", ".join(f"{count:,} {effects()[do].words}" for do, count in counts.items())


def selection_text(selection: Mapping[str, Any]) -> str:
    names = {"session_id": "session", "actor": "client", "source": "source", "since": "from", "until": "until"}
    parts = [f"{names[name]} {selection[name]}" for name in names if selection.get(name)]
    if selection.get("include_people"):
        parts.append("including people")
    return ", ".join(parts)


def step_rows(steps: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = _item_rows(steps)
    for row, step in zip(rows, steps, strict=True):
        row |= {"done": effects()[step["do"]].words, "change": _change(step), "name": step.get("name", "")}
    return rows


def left_rows(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    rows = _item_rows(items)
    for row, item in zip(rows, items, strict=True):
        row |= {"why": item["why"], "name": _as_words(item.get("title", ""))}
    return rows


def _item_rows(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    ids = {item["id"] for item in items if item.get("id")}
    entities = find_entities(ids)
    types = dict(log.events().at(ids - set(entities)).values_list("position", "event_type"))
    words = words_of(list(types))
    rows = []
    for item in items:
        number = item.get("id", 0)
        entity = entities.get(number)
        if entity:
            title, kind = entity.title, entity.type
        else:
            kind = types.get(number, "")
            title = words.get(number, "")
            if title == kind:
                title = _as_words(title)
            kind = kind.partition(".")[0]
        url = page_of_entity(entity.type if entity else "", number) if number else ""
        rows.append({"id": number, "url": url, "title": title, "type": kind, "label": kind.capitalize()})
    return rows


def _change(step: Mapping[str, Any]) -> str:
    if step.get("to_version"):
        return f"version {step['from_version']} → {step['to_version']}"
    if effects()[step["do"]].values:
        return f"{_value(step.get('before'))} → {_value(step.get('after'))}"
    return ""


def _value(value: Any) -> str:
    if value is None:
        return "default"
    return str(value)[:120] or "empty"
