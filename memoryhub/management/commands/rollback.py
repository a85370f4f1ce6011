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
            shown = preview(command=command_from(RollbackPlan, options))
            if not options["yes"]:
                end = "nothing was changed; add --yes to roll back" if shown.counts else "nothing to roll back"
                return self.answer(shown, [*_preview_lines(shown), end])
            if not self.as_json:
                self.answer(shown, _preview_lines(shown))
            chosen = {**options, "confirm_token": shown.confirm_token}
            return self._print(roll_back(command=command_from(RollbackMake, chosen)))

    def _print(self, made: RollbackView) -> None:
        self.answer(made, _made_lines(made))


def _preview_lines(shown: Preview) -> Iterator[str]:
    for title, groups in (("direct", shown.trace.direct), ("downstream", shown.trace.derived)):
        for group in groups:
            yield f"{title}: {group.count} × {group.title.lower()}"
            yield from _things(group)
    for left in shown.left:
        yield flat(f"unchanged: {f'#{left.id} ' if left.id else ''}{left.title}{' ' * bool(left.title)}({left.why})")
    if shown.left_count > len(shown.left):
        yield f"unchanged: {shown.left_count - len(shown.left)} more"
    done = ", ".join(f"{do} {count}" for do, count in shown.counts.items())
    yield f"{counted(shown.trace.events, 'event')}; would {done or 'change nothing'}"


def _things(group: Group) -> Iterator[str]:
    for thing in group.shown[:_SHOWN]:
        via = f" ({thing.how} #{thing.via})" if thing.via else ""
        note = f" ({thing.changed_since or thing.quarantined})" if thing.changed_since or thing.quarantined else ""
        line = flat(f"#{thing.id} {thing.type} {thing.title}{via}{note}")
        yield f"  {'  ' * max(0, thing.depth - 1)}{line}"
    if group.count > _SHOWN:
        yield f"  … and {group.count - _SHOWN} more"


def _made_lines(made: RollbackView) -> Iterator[str]:
    left = made.undone_left if made.undone_at else made.left
    done = ", ".join(f"{do} {count}" for do, count in made.counts.items())
    state = "undone" if made.undone_at else "made"
    yield f"roll-back #{made.id} {state}: {done}; {len(left)} unchanged"
    if made.undone_at:
        for item in left:
            yield flat(f"unchanged: #{item.id} {item.title} ({item.why})")
    else:
        yield f"to undo it: memory-hub rollback --undo {made.id}"
