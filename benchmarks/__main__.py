"""Run a benchmark: ``python -m benchmarks speed``, ``quality`` or ``load``."""

from __future__ import annotations

import os
import sys

import django


def main(argv: list[str]) -> None:
    # A person signs in under load, for which the settings of a store have no app
    settings = "memoryhub.settings" if argv[1:2] == ["load"] else "memoryhub.settings_store"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    django.setup()
    from benchmarks.load.command import Command as LoadCommand
    from benchmarks.quality.command import Command as QualityCommand
    from benchmarks.speed.command import Command as SpeedCommand

    commands = {"speed": SpeedCommand, "quality": QualityCommand, "load": LoadCommand}
    if not argv[1:] or argv[1] not in commands:
        sys.exit("usage: python -m benchmarks speed|quality|load …; --help after either lists its options")
    commands[argv[1]]().run_from_argv(["python -m benchmarks", *argv[1:]])


if __name__ == "__main__":
    main(sys.argv)
