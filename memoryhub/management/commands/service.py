from __future__ import annotations

import json
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.client.setup import service as services
from memoryhub.management.base import HubCommand


class Command(HubCommand):
    help = "Run the hub as a service of your user account, from sign-in on: install, remove, or show its status."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("action", choices=["install", "remove", "status"])
        parser.add_argument("--port", type=int, help="with install: the port (default: that of `memory-hub serve`)")
        parser.add_argument("--dry-run", action="store_true", help="with install: only show the service's file")
        parser.add_argument("--json", action="store_true", help="with status: print JSON")

    def handle(self, *args: Any, **options: Any) -> None:
        service = services.service(port=options["port"])
        if options["action"] == "install":
            self._install(service, only_show=options["dry_run"])
        elif options["action"] == "remove":
            removed = services.remove(service)
            self.stdout.write(f"{service.path}: removed" if removed else "the hub is not installed as a service")
        else:
            self._show(service, as_json=options["json"])

    def _install(self, service: services.Service, *, only_show: bool) -> None:
        if only_show:
            self.stdout.write(f"{service.path}:\n{service.content}")
            return
        services.install(service)
        self.stdout.write(f"{service.path}: written")
        self.stdout.write(f"{service.manager} runs the hub now and after each sign-in. `memory-hub status` shows it.")

    def _show(self, service: services.Service, *, as_json: bool) -> None:
        installed, running = service.is_installed, service.is_running()
        if as_json:
            facts = {"manager": service.manager, "path": str(service.path), "installed": installed, "running": running}
            self.stdout.write(json.dumps(facts))
        elif installed:
            self.stdout.write(f"installed in {service.path}; {'running' if running else 'not running'}")
        else:
            self.stdout.write("not installed; `memory-hub service install` does it")
