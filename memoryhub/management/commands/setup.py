from __future__ import annotations

import sys
from collections.abc import Iterable
from getpass import getpass
from pathlib import Path
from shlex import quote
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.client.setup import plan
from memoryhub.client.setup.clients import config_file, is_installed, repository_of
from memoryhub.client.setup.document import read_document
from memoryhub.client.setup.entries import find_server, server_url
from memoryhub.client.setup.plan import Change
from memoryhub.client.setup.team import Address, check_token, connect, disconnect, parse_address
from memoryhub.client.setup.trial import try_client
from memoryhub.client.setup.trial_http import try_url
from memoryhub.config.clients import Client, all_clients, find_client
from memoryhub.config.identity import check_project_id
from memoryhub.config.layers import config_path, set_of_the_hub
from memoryhub.config.repository import find_repository
from memoryhub.config.teams.connections import TOKEN, VARIABLE, Connection, all_connections
from memoryhub.config.teams.sending import team_states
from memoryhub.core.autostart import SETTING
from memoryhub.core.errors import Invalid
from memoryhub.core.text import counted
from memoryhub.management.base import Group, HubCommand
from memoryhub.ops.serving.state import hub_state


class Command(HubCommand):
    help = "Connect a client to this hub: show the change to its configuration, then make it. Without CLIENT, list all."
    group = Group.RUN
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("client", nargs="?", metavar="CLIENT", help=", ".join(all_clients()))
        parser.add_argument("--repository", action="store_true", help="change this repository's file, not the user's")
        parser.add_argument("--project", metavar="ID", help="always use this project, not that of the client's folder")
        parser.add_argument(
            "--url",
            help="work with a team's hub: https://HOST/p/PROJECT/mcp, or https://HOST with --project; hooks in this "
            "folder then send there, and without CLIENT nothing else changes",
        )
        parser.add_argument(
            "--token-file", metavar="FILE", help="file with your token for --url, - for standard input; default: ask"
        )
        parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of --url, if not the system's")
        parser.add_argument("--no-hooks", action="store_false", dest="hooks", help="only the MCP server, no hooks")
        start = parser.add_mutually_exclusive_group()
        start.add_argument("--autostart", action="store_true", default=None, help="let clients start the hub (default)")
        start.add_argument("--no-autostart", action="store_false", dest="autostart", help="start the hub only by hand")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--yes", action="store_true", help="make the change without asking")
        act.add_argument("--dry-run", action="store_true", help="only show the change")
        act.add_argument("--check", action="store_true", help="start the configured server as the client would")
        parser.add_argument("--remove", action="store_true", help="remove the configuration again")

    def values(self) -> dict[str, Iterable[str]]:
        return {"client": all_clients()}

    def handle(self, *args: Any, **options: Any) -> None:
        repository = repository_of(Path.cwd()) if options["repository"] else None
        if options["url"]:
            self._with_team(repository, options)
        elif options["token_file"] or options["ca_file"]:
            raise Invalid("--token-file and --ca-file go with --url; name the team's hub")
        elif not options["client"] and options["autostart"] is None:
            self._list(repository, options)
        elif options["check"]:
            self._check(find_client(options["client"] or ""), repository)
        elif not options["client"] or self._set_up(find_client(options["client"]), repository, options):
            self._set_autostart(options)

    def _with_team(self, repository: Path | None, options: dict[str, Any]) -> None:
        address = parse_address(options["url"], options["project"])
        client = find_client(options["client"]) if options["client"] else None
        if options["check"]:
            self._check_url(address.mcp_url, options["ca_file"] or "")
            return
        token = self._token(address, options)
        options["url"] = address.mcp_url
        if client and not self._set_up(client, repository, options):
            return
        if options["dry_run"] or (client and not (options["hooks"] and client.hooks)):
            return
        folder = _folder()
        if options["remove"]:
            self.stdout.write(disconnect(folder))
            return
        made = connect(folder, address, token=token, ca_file=options["ca_file"] or "")
        self.stdout.write(f"{made.folder}: hooks work with project {made.project} at {made.url}")
        if client and client.http and not client.http.input:
            self.stdout.write(f"{client.name} reads the token from {VARIABLE}. Put this into your shell's profile:")
            self.stdout.write(f'export {VARIABLE}="$(cat {quote(f"{made.place}/{TOKEN}")})"')

    # "" keeps the token that is there.
    def _token(self, address: Address, options: dict[str, Any]) -> str:
        given = options["token_file"]
        if given:
            return check_token(sys.stdin.read() if given == "-" else Path(given).read_text("utf-8"))
        known = Connection(folder="", url=address.url, project=address.project).token()
        if known or options["remove"] or options["dry_run"] or not options["hooks"]:
            return ""
        if not sys.stdin.isatty():
            raise Invalid("give your token of that hub with --token-file FILE, or - for standard input")
        return check_token(getpass(f"Your token of {address.url} (not shown): "))

    def _check_url(self, url: str, ca_file: str) -> None:
        answer = try_url(url, ca_file=ca_file)
        served = {(found.url, found.project) for found in all_connections() if found.serves(url)}
        waiting = [state for state in team_states() if (state.url, state.project) in served]
        lines = [f"ok: {answer.server} answers with {answer.tools} tools (MCP {answer.protocol})"]
        for state in waiting:
            problem = f"; since {state.since}: {state.problem}" if state.problem else ""
            lines.append(f"hooks: {counted(state.waiting, 'event')} of project {state.project} wait{problem}")
        self.answer({"server": answer, "teams": waiting}, lines)

    def _list(self, repository: Path | None, options: dict[str, Any]) -> None:
        if options["check"] or options["remove"] or options["yes"]:
            raise Invalid(f"give a client, one of: {', '.join(all_clients())}")
        found = [
            {
                "client": client.id,
                "installed": is_installed(client),
                "status": plan.status_of(client, repository=repository),
            }
            for client in all_clients().values()
            if client.repository or not repository
        ]
        row = "{client:<15} {place:<10} {status}"
        lines = [row.format(**facts, place="installed" if facts["installed"] else "not found") for facts in found]
        self.answer({"results": found}, lines)

    def _check(self, client: Client, repository: Path | None) -> None:
        entry = find_server(client, read_document(config_file(client, repository)))
        if url := server_url(client, entry or {}):
            self._check_url(url, "")
            return
        answer = try_client(client, repository=repository, directory=repository or Path.cwd())
        state = hub_state()
        captured = state.last_captures.get(client.id)
        lines = [
            f"ok: {answer.server} answers with {answer.tools} tools (MCP {answer.protocol})",
            f"hub: {state.hub}",
            *(
                [f"hooks: {f'last captured at {captured}' if captured else 'nothing captured yet'}"]
                * bool(client.hooks)
            ),
        ]
        self.answer({"server": answer, "hub": state.running, "last_capture": captured}, lines)

    def _set_up(self, client: Client, repository: Path | None, options: dict[str, Any]) -> bool:
        """Show the change and make it; return False if it is not wanted."""
        changes = self._planned(client, repository, options)
        if not changes:
            return True
        is_wanted = self._is_wanted(changes, options)
        if is_wanted:
            self._make(client, changes, options)
        return is_wanted

    def _set_autostart(self, options: dict[str, Any]) -> None:
        value = options["autostart"]
        if value is not None and not options["dry_run"]:
            set_of_the_hub(SETTING, value=value)
            self.stdout.write(f"{config_path()}: {SETTING} = {str(value).lower()}")

    def _planned(self, client: Client, repository: Path | None, options: dict[str, Any]) -> list[Change]:
        project = check_project_id(options["project"], "--project") if options["project"] else None
        url = options["url"] or ""
        try:
            if options["remove"]:
                changes = plan.plan_removal(client, repository=repository)
            else:
                changes = plan.plan_setup(
                    client, repository=repository, project=project, hooks=options["hooks"], url=url
                )
        except Invalid as error:
            if "by hand" in error.message and not options["remove"]:
                self.stdout.write(plan.to_paste(client, project, url))
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
            self.stdout.write("Make this change? [y/N] ", ending="")
            self.stdout.flush()
            return sys.stdin.readline().strip().lower() in ("y", "yes")
        self.stdout.write("nothing was changed; add --yes to make the change")
        return False

    def _make(self, client: Client, changes: list[Change], options: dict[str, Any]) -> None:
        plan.apply(changes)
        for change in changes:
            self.stdout.write(f"{change.path}: {change.outcome}")
        if not options["remove"]:
            where = " --repository" if options["repository"] else ""
            if where and not options["url"]:
                self.stdout.write("The path in the file is valid on this machine only.")
            if client.note and client.hooks and len(changes) > 1:
                self.stdout.write(client.note)
            self.stdout.write(
                f"Restart {client.name}. To test the connection: memory-hub setup {client.id}{where} --check"
            )


# The top of the working tree, else the working folder itself.
def _folder() -> Path:
    return repository_of(Path.cwd()) if find_repository(Path.cwd()) else Path.cwd()
