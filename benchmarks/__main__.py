"""Run a benchmark: ``python -m benchmarks speed`` or ``python -m benchmarks quality``."""

from __future__ import annotations

import os
import sys

import django


def main(argv: list[str]) -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "memoryhub.settings_store")
    django.setup()
    from benchmarks.quality.command import Command as QualityCommand
    from benchmarks.speed.command import Command as SpeedCommand

    commands = {"speed": SpeedCommand, "quality": QualityCommand}
    if not argv[1:] or argv[1] not in commands:
        sys.exit("usage: python -m benchmarks speed|quality …; --help after either lists its options")
    commands[argv[1]]().run_from_argv(["python -m benchmarks", *argv[1:]])


if __name__ == "__main__":
    main(sys.argv)
