from __future__ import annotations

from dataclasses import asdict
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.permissions import MEMBER_ROLES
from memoryhub.core.stores.store import StoreId, org_store, project_store
from memoryhub.core.validation import command_from
from memoryhub.management.base import CommandGroup, HubCommand, use_cli_origin
from memoryhub.ops.hub_databases import prepare_databases
from memoryhub.registry import members


class Command(HubCommand):
    help = "List, add and remove the members of a project or an organisation."
    group = CommandGroup.RUN
    reads = ("list",)

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="list|add|remove")
        listed = acts.add_parser("list", help="list everyone who may see it, and why")
        add = acts.add_parser("add", help="give a person a role, or another one")
        add.add_argument("name", metavar="PERSON", help="as on the People page")
        add.add_argument("--role", choices=MEMBER_ROLES, required=True, help="what they may do there")
        remove = acts.add_parser("remove", help="take a person's role away")
        remove.add_argument("name", metavar="PERSON", help="as on the People page")
        for command in (listed, add, remove):
            where = command.add_mutually_exclusive_group(required=True)
            where.add_argument("--project", metavar="ID", help="of this project")
            where.add_argument("--org", metavar="ID", help="of this organisation, and all its projects")

    def handle(self, *args: Any, **options: Any) -> None:
        prepare_databases()
        if options["project"] is None:
            store = org_store(options["org"])
        else:
            store = project_store(options["project"])
        with use_cli_origin():
            getattr(self, f"_{options['act']}")(store, options)

    def _list(self, store: StoreId, _: dict[str, Any]) -> None:
        listed = members.list_members(store)
        lines = [members.described(member) for member in listed] or ["no members; people with a role in the hub see it"]
        self.answer({"results": [asdict(member) for member in listed]}, lines)

    def _add(self, store: StoreId, options: dict[str, Any]) -> None:
        command = command_from(members.MemberSet, {"role": options["role"]})
        member = members.set_member(store=store, name=options["name"], command=command)
        self.stdout.write(members.described(member))

    def _remove(self, store: StoreId, options: dict[str, Any]) -> None:
        members.remove_member(store=store, name=options["name"])
        self.stdout.write(f"{options['name']} has no role in {store.place} of their own any more")
