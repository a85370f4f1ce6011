from __future__ import annotations

from argparse import SUPPRESS
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.core.management import call_command
from django.core.management.base import CommandError, CommandParser

from governance.findings.selectors import project_findings
from governance.present import findings_lines
from memoryhub.client.setup import plan as setup_plan
from memoryhub.client.setup.clients import is_installed, user_target
from memoryhub.client.setup.plan import ConfigChange, SetupChoices
from memoryhub.config.clients import Client, all_clients
from memoryhub.config.repository import working_folder
from memoryhub.core.errors import ConflictError, HubError
from memoryhub.core.stores.store import project_store, use_store
from memoryhub.management.base import CommandGroup, ProjectCommand, entity_id, use_cli_origin
from memoryhub.management.importing import import_plan, is_wanted, plan_lines
from memoryhub.transfer.start import run_start
from memoryhub.transfer.start_plan import plan_start

# After so long a person should see what was imported; what is older follows in the background
_SECONDS = 10.0


class Command(ProjectCommand):
    help = "Import what this machine knows of this repository, connect the clients, start the hub and open it."
    group = CommandGroup.RUN
    # It opens a page
    is_slim = False
    interrupted = "interrupted; what was imported is kept, and the same command imports the rest"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        act = parser.add_mutually_exclusive_group()
        act.add_argument("--yes", action="store_true", help="do it without asking")
        act.add_argument("--preview", action="store_true", help="show the plan, and change nothing")
        parser.add_argument("--no-clients", action="store_false", dest="clients", help="connect no clients")
        parser.add_argument("--no-open", action="store_false", dest="opens", help="print the link, and open no browser")
        parser.add_argument("--continue", type=entity_id, dest="batch", help=SUPPRESS)

    def handle(self, *args: Any, **options: Any) -> None:
        plan = plan_start(working_folder(), options["project"])
        if options["batch"]:
            with use_cli_origin():
                run_start(plan, batch=options["batch"])
            return
        changes = list(_client_changes()) if options["clients"] else []
        for line in plan_lines(plan):
            self.stdout.write(line)
        for client, files in changes:
            self.stdout.write(f"  connect {client.name}: {', '.join(str(change.path) for change in files)}")
        if options["preview"]:
            return
        if plan.parts or changes:
            if not is_wanted(self, "Do this?", is_yes=options["yes"]):
                return
            try:
                import_plan(self, plan, seconds=_SECONDS)
            except ConflictError as error:  # an earlier one goes on in the background
                self.stderr.write(error.message)
        for client, files in changes:
            setup_plan.apply(files)
            self.stdout.write(f"Connected {client.name}; restart it. To undo it: memory-hub setup {client.id} --remove")
        self._show_findings(plan.project)
        self.stdout.flush()
        try:
            call_command("open", plan.project, print=not options["opens"])
        except CommandError as error:
            self.stderr.write(str(error))

    def _show_findings(self, project: str) -> None:
        with suppress(HubError), use_store(project_store(project)):
            for line in findings_lines(project_findings()):
                self.stdout.write(line)


# The clients of this machine that are not connected yet, with the changes of their files
def _client_changes() -> Iterator[tuple[Client, list[ConfigChange]]]:
    for client in filter(is_installed, all_clients().values()):
        try:
            changes = setup_plan.plan_setup(user_target(client), SetupChoices())
        except HubError:
            continue  # `setup` says why
        if changes:
            yield client, changes
