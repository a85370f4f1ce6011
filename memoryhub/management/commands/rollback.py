"""Roll back what a session, a client, a door or a time has left."""

from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from governance.rollback.schemas import Group, Include, Preview, RollbackMake, RollbackPlan, RollbackUndo, RollbackView
from governance.rollback.services import preview, roll_back, undo_rollback
from memoryhub.core.text import counted, flat
from memoryhub.core.validation import command_from
from memoryhub.management.base import StoreCommand, entity_id

_SHOWN = 10


class Command(StoreCommand):
    """``memory-hub rollback``."""

    help = (
        "Show what a session, client, door or time has left in a store and what was derived from it; with --yes, set "
        "it aside, or undo it. --undo ID undoes a roll-back."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add what to choose, and what to do."""
        super().add_arguments(parser)
        parser.add_argument("--session", dest="session_id", metavar="NAME", help="what was done in this session")
        parser.add_argument("--actor", metavar="NAME", help="by this client or person")
        parser.add_argument("--source", metavar="DOOR", help="through this door: mcp, rest, hook, import, cli …")
        parser.add_argument("--since", metavar="POINT", help="from this time (ISO 8601, UTC) or position on")
        parser.add_argument("--until", metavar="POINT", help="before this time, or up to this position")
        parser.add_argument(
            "--include-people", action="store_true", default=None, help="what people did at the admin too"
        )
        parser.add_argument("--action", choices=["quarantine", "undo"], help="default: quarantine")
        parser.add_argument(
            "--include",
            action="append",
            choices=[each.value for each in Include],
            help="reach this too: what others have changed since, what was built on it, or what was written afterwards "
            "in sessions that were told of it; may be repeated",
        )
        parser.add_argument("--also", type=entity_id, nargs="+", metavar="ID", help="reach these derived things too")
        parser.add_argument("--leave", type=entity_id, nargs="+", metavar="ID", help="leave these as they are")
        parser.add_argument("--reason", help="why; kept in the log")
        parser.add_argument("--yes", action="store_true", help="do it; without, it is only shown")
        parser.add_argument("--undo", type=entity_id, metavar="ID", help="undo this roll-back")

    def handle(self, *args: Any, **options: Any) -> None:
        """Show it, do it, or undo it."""
        with self.store(options):
            if options["undo"]:
                reason = options["reason"] or ""
                return self._tell(undo_rollback(command=RollbackUndo(id=options["undo"], reason=reason)))
            shown = preview(command=command_from(RollbackPlan, options))
            self._show(shown)
            if not shown.counts and not options["yes"]:
                return self.stdout.write("there is nothing to roll back")
            if not options["yes"]:
                return self.stdout.write("nothing was changed; to do it, add --yes")
            chosen = {**options, "confirm_token": shown.confirm_token}
            return self._tell(roll_back(command=command_from(RollbackMake, chosen)))

    def _show(self, shown: Preview) -> None:
        for title, groups in (("it did", shown.trace.direct), ("derived from it", shown.trace.derived)):
            for group in groups:
                self.stdout.write(f"{title}: {group.count} × {group.title.lower()}")
                self._things(group)
        for left in shown.left:
            self.stdout.write(
                flat(f"left: {f'#{left.id} ' if left.id else ''}{left.title}{' ' * bool(left.title)}({left.why})")
            )
        if shown.left_count > len(shown.left):
            self.stdout.write(f"left: {shown.left_count - len(shown.left)} more")
        done = ", ".join(f"{do} {count}" for do, count in shown.counts.items())
        self.stdout.write(f"{counted(shown.trace.events, 'event')}; would {done or 'do nothing'}")

    def _things(self, group: Group) -> None:
        for thing in group.shown[:_SHOWN]:
            via = f" ({thing.how} #{thing.via})" if thing.via else ""
            told = f" ({thing.changed_since or thing.quarantined})" if thing.changed_since or thing.quarantined else ""
            line = flat(f"#{thing.id} {thing.type} {thing.title}{via}{told}")
            self.stdout.write(f"  {'  ' * max(0, thing.depth - 1)}{line}")
        if group.count > _SHOWN:
            self.stdout.write(f"  … and {group.count - _SHOWN} more")

    def _tell(self, made: RollbackView) -> None:
        left = made.undone_left if made.undone_at else made.left
        done = ", ".join(f"{do} {count}" for do, count in made.counts.items())
        state = "undone" if made.undone_at else "made"
        self.stdout.write(f"roll-back #{made.id} {state}: {done}; {len(left)} left as they are")
        if made.undone_at:
            for each in left:
                self.stdout.write(flat(f"left: #{each.id} {each.title} ({each.why})"))
        else:
            self.stdout.write(f"to undo it: memory-hub rollback --undo {made.id}")
