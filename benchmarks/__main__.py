"""Run a benchmark: ``python -m benchmarks speed``, ``quality``, ``yardstick``, ``load`` or ``engines``."""

from __future__ import annotations

import os
import sys
from importlib import import_module

import django

from memoryhub.env import DATABASE_VARIABLE, FILES

COMMANDS = ("speed", "quality", "yardstick", "load", "engines")


def main(argv: list[str]) -> None:
    # A person signs in under load, for which the settings of a store have no app
    settings = "memoryhub.settings" if argv[1:2] == ["load"] else "memoryhub.settings_store"
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", settings)
    os.environ[DATABASE_VARIABLE] = FILES
    django.setup()
    if argv[1:2] not in [[name] for name in COMMANDS]:
        sys.exit(f"usage: python -m benchmarks {'|'.join(COMMANDS)} …; --help after one lists its options")
    command = import_module(f"benchmarks.{argv[1]}.command").Command()
    command.run_from_argv(["python -m benchmarks", *argv[1:]])


if __name__ == "__main__":
    main(sys.argv)
