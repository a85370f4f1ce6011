from __future__ import annotations

from typing import Any

from django.core.management.base import CommandParser

from memoryhub import __version__
from memoryhub.client.setup import service as services
from memoryhub.management.base import CommandGroup, HubCommand, whole_number


class Command(HubCommand):
    help = "Run the hub as a service of your user account, from sign-in on: install, restart, remove it, or show it."
    group = CommandGroup.RUN
    reads = ("status",)

    def add_arguments(self, parser: CommandParser) -> None:
        acts = parser.add_subparsers(dest="act", required=True, metavar="ACTION")
        install = acts.add_parser("install", help="start the hub now and after each sign-in")
        install.add_argument("--port", type=whole_number, help="default: that of `memory-hub serve`")
        install.add_argument("--dry-run", action="store_true", help="only show the service's file")
        acts.add_parser("restart", help="stop the hub and start it again, as after an upgrade")
        acts.add_parser("remove", help="stop the hub and remove the service")
        acts.add_parser("status", help="show whether the service is installed and runs")

    def handle(self, *args: Any, **options: Any) -> None:
        service = services.service(port=options.get("port"))
        if options["act"] == "status":
            self._show(service)
        elif options["act"] == "remove":
            removed = services.remove(service)
            self.stdout.write(f"{service.path}: removed" if removed else "the hub is not installed as a service")
        elif options["act"] == "restart":
            services.restart(service)
            self.stdout.write(f"{service.manager} runs the hub of version {__version__}")
        elif options["dry_run"]:
            self.stdout.write(f"{service.path}:\n{service.content}")
        else:
            services.install(service)
            self.stdout.write(f"{service.path}: written")
            self.stdout.write(f"{service.manager} runs the hub now and after each sign-in: `memory-hub status`")

    def _show(self, service: services.Service) -> None:
        installed = service.is_installed
        running = service.is_running()
        line = "not installed; `memory-hub service install` does it"
        if installed:
            line = f"installed in {service.path}; {'running' if running else 'not running'}"
        facts = {"manager": service.manager, "path": service.path, "installed": installed, "running": running}
        self.answer(facts, [line])
