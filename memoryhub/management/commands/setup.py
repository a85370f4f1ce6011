"""Connect a client with this hub."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.client.setup import plan
from memoryhub.client.setup.clients import is_installed, repository_of
from memoryhub.client.setup.plan import Change
from memoryhub.client.setup.trial import try_client
from memoryhub.config.clients import Client, all_clients, find_client
from memoryhub.config.identity import check_project_id
from memoryhub.core.errors import Invalid
from memoryhub.management.base import HubCommand


class Command(HubCommand):
    """``memory-hub setup CLIENT``."""

    help = (
        "Connect a client with this hub: shows the change of its configuration, and makes it. Without one: lists all."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the client, and how."""
        parser.add_argument("client", nargs="?", metavar="CLIENT", help=", ".join(all_clients()))
        parser.add_argument("--repository", action="store_true", help="this repository's own file, not the user's")
        parser.add_argument("--project", metavar="ID", help="always this project, not the one of the client's folder")
        parser.add_argument("--no-hooks", action="store_false", dest="hooks", help="the server alone")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--yes", action="store_true", help="do it without asking")
        act.add_argument("--dry-run", action="store_true", help="show it only")
        act.add_argument("--check", action="store_true", help="start what is set up, as the client would")
        parser.add_argument("--remove", action="store_true", help="take out what was put in")

    def handle(self, *args: Any, **options: Any) -> None:
        """Do what the options say."""
        repository = repository_of(Path.cwd()) if options["repository"] else None
        if not options["client"]:
            self._list(repository, options)
            return
        client = find_client(options["client"])
        if options["check"]:
            self._check(client, repository)
            return
        changes = self._planned(client, repository, options)
        if changes and self._is_wanted(changes, options):
            self._make(client, changes, options)

    def _list(self, repository: Path | None, options: dict[str, Any]) -> None:
        if options["check"] or options["remove"] or options["yes"]:
            raise Invalid(f"which client? Name one of: {', '.join(all_clients())}")
        for client in all_clients().values():
            if repository and not client.repository:
                continue
            installed = "installed" if is_installed(client) else "not found"
            standing = plan.status_of(client, repository=repository)
            self.stdout.write(f"{client.id:<15} {installed:<10} {standing}")

    def _check(self, client: Client, repository: Path | None) -> None:
        answer = try_client(client, repository=repository, directory=repository or Path.cwd())
        self.stdout.write(f"ok: {answer.server} answers with {answer.tools} tools (MCP {answer.protocol})")

    def _planned(self, client: Client, repository: Path | None, options: dict[str, Any]) -> list[Change]:
        project = check_project_id(options["project"], "--project") if options["project"] else None
        try:
            if options["remove"]:
                changes = plan.plan_removal(client, repository=repository)
            else:
                changes = plan.plan_setup(client, repository=repository, project=project, hooks=options["hooks"])
        except Invalid as error:
            if "by hand" in error.message and not options["remove"]:
                self.stdout.write(plan.to_paste(client, project))
            raise
        if not changes:
            self.stdout.write(f"{client.name}: nothing to do")
        return changes

    def _is_wanted(self, changes: list[Change], options: dict[str, Any]) -> bool:
        for change in changes:
            self.stdout.write(change.diff)
        if options["yes"]:
            return True
        if not options["dry_run"] and sys.stdin.isatty():
            self.stdout.write("Write this? [y/N] ", ending="")
            self.stdout.flush()
            return sys.stdin.readline().strip().lower() in ("y", "yes")
        self.stdout.write("nothing was changed; to do it, add --yes")
        return False

    def _make(self, client: Client, changes: list[Change], options: dict[str, Any]) -> None:
        for change, backup in zip(changes, plan.apply(changes), strict=True):
            kept = f"; as it was: {backup.name} beside it" if backup else ""
            self.stdout.write(f"{change.path}: {'written' if change.after.data else 'removed'}{kept}")
        if not options["remove"]:
            where = " --repository" if options["repository"] else ""
            if where:
                self.stdout.write("The path in it is this machine's; elsewhere it has to be another.")
            self.stdout.write(f"Start {client.name} anew. To try it: memory-hub setup {client.id}{where} --check")
