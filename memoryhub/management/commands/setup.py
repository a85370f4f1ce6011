from __future__ import annotations

import sys
from dataclasses import replace
from getpass import getpass
from pathlib import Path
from shlex import quote
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.client.setup import plan
from memoryhub.client.setup.agent_files import read_own_file
from memoryhub.client.setup.clients import (
    SetupTarget,
    folder_target,
    is_installed,
    project_folder,
    repository_of,
    repository_target,
    user_target,
)
from memoryhub.client.setup.document import read_document
from memoryhub.client.setup.entries import find_server, server_url
from memoryhub.client.setup.plan import ConfigChange, SetupChoices
from memoryhub.client.setup.team import (
    Address,
    check_token,
    check_variable,
    connect,
    disconnect,
    parse_address,
    require_own_variable,
    stored_token,
    token_variable_of,
)
from memoryhub.client.setup.trial import try_client, try_url
from memoryhub.config.clients import Client, all_clients, find_client
from memoryhub.config.current_settings import config_path, set_of_the_hub
from memoryhub.config.identity import check_project_id
from memoryhub.config.repository import working_folder
from memoryhub.core import clock
from memoryhub.core.autostart import SETTING
from memoryhub.core.errors import Invalid
from memoryhub.core.home_database import masked, only_of_this_process, require_own
from memoryhub.core.text import counted
from memoryhub.env import DATABASE_SETTING, DATABASE_VARIABLE, DatabaseUrlError
from memoryhub.management.base import CommandGroup, HubCommand, read_input
from memoryhub.mcp.options import PROFILES
from memoryhub.ops.serving.state import hub_state
from memoryhub.teams.connections import TOKEN, VARIABLE, all_connections
from memoryhub.teams.sending import team_states


class Command(HubCommand):
    help = "Connect a client to this hub: show the change to its configuration, then make it. Without CLIENT, list all."
    group = CommandGroup.RUN
    reads = True

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "client", nargs="?", metavar="CLIENT", choices=list(all_clients()), help=", ".join(all_clients())
        )
        parser.add_argument("--repository", action="store_true", help="change this repository's files, not your own")
        parser.add_argument("--project", metavar="ID", help="always use this project, not that of the client's folder")
        parser.add_argument(
            "--url",
            help="work with a team's hub in this folder: https://HOST/p/PROJECT/mcp, or https://HOST with --project; "
            "without CLIENT, only the folder's hooks are connected",
        )
        parser.add_argument(
            "--token-file", metavar="FILE", help="file with your token for --url, - for standard input; default: ask"
        )
        parser.add_argument(
            "--token-variable",
            metavar="NAME",
            help=f"environment variable from which clients take the token of --url; default: {VARIABLE}",
        )
        parser.add_argument("--ca-file", metavar="FILE", help="certificate authority of --url, if not the system's")
        parser.add_argument(
            "--profile", choices=PROFILES, help="which tools the server lists; default: as it is set up, else core"
        )
        parser.add_argument(
            "--no-hooks",
            action="store_false",
            dest="hooks",
            help="only the MCP server: no hooks, librarian, skill and status line",
        )
        parser.add_argument(
            "--no-status-line", action="store_false", dest="status_line", help="no status line in the client"
        )
        allow = parser.add_mutually_exclusive_group()
        allow.add_argument(
            "--permissions",
            action="store_true",
            default=None,
            help="let the client use the hub's read-only tools without asking; default: ask at a terminal, else no",
        )
        allow.add_argument(
            "--no-permissions", action="store_false", dest="permissions", help="do not ask, and allow nothing"
        )
        start = parser.add_mutually_exclusive_group()
        start.add_argument("--autostart", action="store_true", default=None, help="let clients start the hub (default)")
        start.add_argument("--no-autostart", action="store_false", dest="autostart", help="start the hub only by hand")
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--yes", action="store_true", help="make the change without asking")
        act.add_argument("--dry-run", action="store_true", help="only show the change")
        act.add_argument("--check", action="store_true", help="start the configured server as the client would")
        parser.add_argument("--remove", action="store_true", help="remove the configuration again")

    def handle(self, *args: Any, **options: Any) -> None:
        repository = None
        if options["repository"]:
            repository = repository_of(working_folder())
        if options["profile"] and (options["url"] or options["remove"] or options["check"] or not options["client"]):
            raise Invalid(
                "--profile goes with a client and a server that it starts; a hub over HTTP lists the core tools"
            )
        if options["url"]:
            self._with_team(repository, options)
        elif options["token_file"] or options["ca_file"] or options["token_variable"]:
            raise Invalid("--token-file, --token-variable and --ca-file go with --url; name the team's hub")
        elif not options["client"] and options["autostart"] is None:
            self._list(repository, options)
        elif options["check"]:
            self._check(find_client(options["client"] or ""), repository)
        elif not options["client"] or self._set_up(_setup_target(options, repository), options):
            self._set_autostart(options)

    def _with_team(self, repository: Path | None, options: dict[str, Any]) -> None:
        address = parse_address(options["url"], options["project"])
        options["url"] = address.mcp_url
        target = None
        if options["client"]:
            target = _setup_target(options, repository)
        elif not options["hooks"]:
            raise Invalid("--no-hooks leaves nothing to set up without a client; name one, or omit it")
        if options["check"]:
            self._check_url(address.mcp_url, options["token_variable"] or "", options["ca_file"] or "")
        elif options["remove"]:
            self._leave(target, options)
        else:
            self._join(target, address, options)

    def _join(self, target: SetupTarget | None, address: Address, options: dict[str, Any]) -> None:
        client = target.client if target else None
        hooks = options["hooks"] and (client is None or client.hooks is not None)
        has_variable = bool(client and client.http and not client.http.input)
        token = ""
        if hooks or has_variable:
            token = self._token(address, options)
        # As chosen, else as the client's entry for the project names it, else as the other clients' do.
        if options["token_variable"]:
            variable = check_variable(options["token_variable"])
        else:
            named = plan.named_variable(target, address.mcp_url) if target else ""
            variable = named or token_variable_of(address) or VARIABLE
        options["variable"] = variable
        if has_variable:
            require_own_variable(variable, address, token)
        if (target and not self._set_up(target, options)) or options["dry_run"] or not (hooks or has_variable):
            return
        connection = connect(
            _connected_folder(target),
            address,
            token=token,
            ca_file=options["ca_file"] or "",
            client=client.id if client else "",
            hooks=hooks,
            variable=variable if has_variable else options["token_variable"] or "",
        )
        token_file = quote(f"{connection.place}/{TOKEN}")
        if hooks:
            self.stdout.write(f"{connection.folder}: hooks work with project {connection.project} at {connection.url}")
        if client and has_variable:
            self.stdout.write(f"{client.name} reads the token from {variable}. Put this into your shell's profile:")
            self.stdout.write(f'export {variable}="$(cat {token_file})"')

    def _leave(self, target: SetupTarget | None, options: dict[str, Any]) -> None:
        if (target and not self._set_up(target, options)) or options["dry_run"]:
            return
        client = ""
        hooks = True
        if target:
            client = target.client.id
            hooks = target.client.hooks is not None
        self.stdout.write(disconnect(_connected_folder(target), client=client, hooks=hooks))

    # "" keeps the token that is there.
    def _token(self, address: Address, options: dict[str, Any]) -> str:
        path = options["token_file"]
        if path == "-":
            return check_token(read_input())
        if path:
            return check_token(Path(path).read_text("utf-8"))
        if stored_token(address) or options["dry_run"]:
            return ""
        if not sys.stdin.isatty():
            raise Invalid("give your token of that hub with --token-file FILE, or - for standard input")
        return check_token(getpass(f"Your token of {address.url} (not shown): "))

    def _check_url(self, url: str, variable: str, ca_file: str) -> None:
        answer = try_url(url, variable=variable, ca_file=ca_file)
        served = {(connection.url, connection.project) for connection in all_connections() if connection.serves(url)}
        waiting = [state for state in team_states() if (state.url, state.project) in served]
        lines = [f"ok: {answer.server} answers with {answer.tools} tools (MCP {answer.protocol})"]
        for state in waiting:
            problem = f"; since {state.since}: {state.problem}" if state.problem else ""
            lines.append(f"hooks: {counted(state.waiting, 'event')} of project {state.project} waiting{problem}")
        self.answer({"server": answer, "teams": waiting}, lines)

    def _list(self, repository: Path | None, options: dict[str, Any]) -> None:
        if options["check"] or options["remove"] or options["yes"]:
            raise Invalid(f"give a client, one of: {', '.join(all_clients())}")
        rows, lines = [], []
        for client in all_clients().values():
            if client.repository or not repository:
                status = _status(client, repository)
                has = is_installed(client)
                rows.append({"client": client.id, "installed": has, "status": status})
                lines.append(f"{client.id:<15} {'installed' if has else 'not found':<10} {status}")
        self.answer({"results": rows}, lines)

    def _check(self, client: Client, repository: Path | None) -> None:
        target = repository_target(client, repository) if repository else plan.target_in_use(client, working_folder())
        entry = find_server(target.client, read_document(target.config)) or {}
        if url := server_url(client, entry):
            self._check_url(url, plan.named_variable(target, url), "")
            return
        answer = try_client(target, directory=repository or working_folder())
        state = hub_state()
        captured = state.last_captures.get(client.id)
        lines = [f"ok: {answer.server} answers with {answer.tools} tools (MCP {answer.protocol})", f"hub: {state.hub}"]
        if client.hooks and captured:
            lines.append(f"hooks: last captured at {clock.minute(captured)}")
        elif client.hooks:
            lines.append("hooks: nothing captured yet")
        self.answer({"server": answer, "hub": state.running, "last_capture": captured}, lines)

    def _set_up(self, target: SetupTarget, options: dict[str, Any]) -> bool:
        """Show the change and make it; return False if it is not wanted."""
        changes = self._planned(target, options)
        if options["url"] and not options["remove"]:
            for warning in plan.warnings(target):
                self.stdout.write(warning)
        address = ""
        if not options["url"] and not options["remove"]:
            address = only_of_this_process()
        if not changes and not address:
            self.stdout.write(f"{target.client.name}: nothing to do")
            return True
        if address:
            self.stdout.write(f'{config_path()}: {DATABASE_SETTING} = "{masked(address)}", from {DATABASE_VARIABLE}')
        is_wanted = self._is_wanted(changes, options)
        if is_wanted:
            if address:
                set_of_the_hub(DATABASE_SETTING, value=address)
            self._make(target, changes, options)
        return is_wanted

    def _set_autostart(self, options: dict[str, Any]) -> None:
        value = options["autostart"]
        if value is not None and not options["dry_run"]:
            set_of_the_hub(SETTING, value=value)
            self.stdout.write(f"{config_path()}: {SETTING} = {str(value).lower()}")

    def _planned(self, target: SetupTarget, options: dict[str, Any]) -> list[ConfigChange]:
        for path in filter(None, (target.agent, target.skill)):
            if options["hooks"] and read_own_file(path) is None:
                self.stdout.write(f"{path} is your own and stays as it is: it is not the hub's.")
        if options["remove"]:
            stay = plan.needs_hooks(target, project_folder(working_folder()))
            if stay and (target.client.hooks or target.skill):
                self.stdout.write(f"The hub's hooks and skill in {target.client.name} stay: other folders need them.")
            return plan.plan_removal(target, hooks=not stay)
        choices = SetupChoices(
            project=check_project_id(options["project"], "--project") if options["project"] else None,
            profile=options["profile"] or "",
            url=options["url"] or "",
            variable=options.get("variable", VARIABLE),
            hooks=options["hooks"],
            status_line=options["status_line"],
        )
        try:
            if self._is_allowed(target, choices, options):
                choices = replace(choices, permissions=True)
            return plan.plan_setup(target, choices)
        except Invalid as error:
            if "by hand" in error.message:
                self.stdout.write(plan.to_paste(target, choices))
            raise

    def _is_allowed(self, target: SetupTarget, choices: SetupChoices, options: dict[str, Any]) -> bool:
        client = target.client
        allowed = bool(options["permissions"])
        if allowed and not client.permissions:
            self.stdout.write(f"{client.name} has no list of allowed tools in a file; allow them in the client.")
        asks = options["permissions"] is None and not options["yes"] and not options["dry_run"] and sys.stdin.isatty()
        if asks and plan.lacks_permissions(target, choices):
            allowed = self.confirm(f"May {client.name} use the hub's read-only tools without asking you?")
        if allowed and client.permissions and client.permissions.note:
            self.stdout.write(client.permissions.note)
        return allowed

    def _is_wanted(self, changes: list[ConfigChange], options: dict[str, Any]) -> bool:
        for change in changes:
            self.stdout.write(change.diff)
        if options["yes"]:
            return True
        if not options["dry_run"] and sys.stdin.isatty():
            return self.confirm("Make this change?")
        self.stdout.write("nothing was changed; add --yes to make the change")
        return False

    def _make(self, target: SetupTarget, changes: list[ConfigChange], options: dict[str, Any]) -> None:
        plan.apply(changes)
        client = target.client
        for change in changes:
            self.stdout.write(f"{change.path}: {change.outcome}")
        if not options["remove"] and not options["url"]:
            try:
                require_own(by_client=True)
            except DatabaseUrlError as error:
                self.stderr.write(f"The client will be refused: {error}")
        if not options["remove"]:
            has_hooks = options["hooks"] and client.hooks
            if target.option and (has_hooks or not options["url"]):
                self.stdout.write("The path in the file is valid on this machine only.")
            if client.note and client.hooks and len(changes) > 1:
                self.stdout.write(client.note)
            self.stdout.write(
                f"Restart {client.name}. To test the connection: memory-hub setup {client.id}{target.option} --check"
            )


# With --url, one folder's: the project of a team must not become that of every folder.
def _setup_target(options: dict[str, Any], repository: Path | None) -> SetupTarget:
    client = find_client(options["client"])
    if repository:
        return repository_target(client, repository)
    if options["url"]:
        return folder_target(client, working_folder())
    return user_target(client)


def _status(client: Client, repository: Path | None) -> str:
    if repository:
        return plan.status_of(repository_target(client, repository))
    return plan.status_in(client, working_folder())


# A client without a configuration for a folder is connected once, in the person's home.
def _connected_folder(target: SetupTarget | None) -> Path:
    if target and target.is_for_all:
        return Path.home()
    return project_folder(working_folder())
