from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from django.core.management.base import CommandParser

from governance.rollback.schemas import Group, Include, Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.service import preview, roll_back, undo_rollback
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, entity_id

_SHOWN = 10


class Command(StoreCommand):
    help = (
        "Preview what a session, client, source or period did in a store and its downstream effects; with --yes, "
        "quarantine or undo it. --undo ID undoes a roll-back."
    )
    is_slim = False
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--session", dest="session_id", metavar="NAME", help="events of this session")
        parser.add_argument("--actor", metavar="NAME", help="events by this client or person")
        parser.add_argument("--source", metavar="SOURCE", help="events from mcp, rest, hook, import, cli …")
        parser.add_argument("--since", metavar="POINT", help="from this time or day (ISO 8601), or position")
        parser.add_argument("--until", metavar="POINT", help="before this time, or up to this position")
        parser.add_argument("--include-people", action="store_true", default=None, help="include events from the admin")
        parser.add_argument("--action", choices=["quarantine", "undo"], help="default: quarantine")
        parser.add_argument(
            "--include",
            action="append",
            choices=[include.value for include in Include],
            help="also include what others changed since, what was built on it, or what was written afterwards in "
            "sessions that received it; may be repeated",
        )
        parser.add_argument(
            "--also", type=entity_id, nargs="+", metavar="ID", help="also include these downstream items"
        )
        parser.add_argument("--leave", type=entity_id, nargs="+", metavar="ID", help="exclude these items")
        parser.add_argument("--reason", help="reason, kept in the log")
        parser.add_argument("--yes", action="store_true", help="roll back; default: preview only")
        parser.add_argument("--undo", type=entity_id, metavar="ID", help="undo this roll-back")

    def handle(self, *args: Any, **options: Any) -> None:
        with self.store(options):
            if options["undo"]:
                reason = options["reason"] or ""
                return self._print(undo_rollback(command=RollbackUndo(id=options["undo"], reason=reason)))
            plan = preview(command=command_from(RollbackPlan, options))
            if not options["yes"]:
                end = "nothing was changed; add --yes to roll back" if plan.counts else "nothing to roll back"
                return self.answer(plan, [*_preview_lines(plan), end])
            if not self.as_json:
                self.answer(plan, _preview_lines(plan))
            chosen = {**options, "confirm_token": plan.confirm_token}
            return self._print(roll_back(command=command_from(RollbackMake, chosen)))

    def _print(self, view: RollbackView) -> None:
        self.answer(view, _made_lines(view))


def _preview_lines(plan: Preview) -> Iterator[str]:
    for title, groups in (("direct", plan.trace.direct), ("downstream", plan.trace.derived)):
        for group in groups:
            yield f"{title}: {group.count} × {group.title.lower()}"
            yield from _things(group)
    for item in plan.left:
        number = f"#{item.id}" if item.id else ""
        yield flat(" ".join(filter(None, ("unchanged:", number, item.title, f"({item.why})"))))
    if plan.left_count > len(plan.left):
        yield f"unchanged: {plan.left_count - len(plan.left)} more"
    counts = ", ".join(f"{do} {count}" for do, count in plan.counts.items())
    yield f"{counted(plan.trace.events, 'event')}; would {counts or 'change nothing'}"


def _things(group: Group) -> Iterator[str]:
    for thing in group.shown[:_SHOWN]:
        line = f"#{thing.id} {thing.type} {thing.title}"
        if thing.via:
            line += f" ({thing.how} #{thing.via})"
        note = thing.changed_since or thing.quarantined
        if note:
            line += f" ({note})"
        line = flat(line)
        yield f"  {'  ' * max(0, thing.depth - 1)}{line}"
    if group.count > _SHOWN:
        yield f"  … and {group.count - _SHOWN} more"


def _made_lines(view: RollbackView) -> Iterator[str]:
    counts = ", ".join(f"{do} {count}" for do, count in view.counts.items())
    if not view.undone_at:
        yield f"roll-back #{view.id} made: {counts}; {len(view.left)} unchanged"
        yield f"to undo it: memory-hub rollback --undo {view.id}"
        return
    yield f"roll-back #{view.id} undone: {counts}; {len(view.undone_left)} unchanged"
    for item in view.undone_left:
        yield flat(f"unchanged: #{item.id} {item.title} ({item.why})")
