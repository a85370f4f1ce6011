from __future__ import annotations

import getpass
import os
import sys
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.origin import use_origin
from memoryhub.core.stores.store import project_store
from memoryhub.core.text import counted, flat
from memoryhub.management.base import Group, StoreCommand
from memoryhub.transfer.applying import Plan, apply_bundle, plan_bundle
from memoryhub.transfer.bundles import Bundle, create_bundle, open_bundle

_VARIABLE = "MEMORY_HUB_BUNDLE_PASSPHRASE"


class Command(StoreCommand):
    help = (
        "Move a store between machines: write its whole log with its proofs to one file, encrypted if wanted, and "
        "apply the file to another hub."
    )
    group = Group.CONTENT
    is_slim = True
    reads = ("apply", "verify")

    def add_arguments(self, parser: CommandParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True, metavar="create|apply|verify")
        create = actions.add_parser("create", help="write a store's log to a file")
        super().add_arguments(create)
        create.add_argument("--encrypt", action="store_true", help="encrypt it with a passphrase, which is asked for")
        create.add_argument("--force", action="store_true", help="overwrite an existing file")
        apply = actions.add_parser("apply", help="bring a store to the state of a file, or merge both")
        apply.add_argument("--preview", action="store_true", help="show what would be done, and change nothing")
        verify = actions.add_parser("verify", help="check a file, and compare it with a store")
        for reading in (apply, verify):
            reading.add_argument("--project", metavar="ID", help="the project; default: the store that the file names")
        for action in (create, apply, verify):
            action.add_argument("file", metavar="FILE", type=Path, help="the bundle")
            action.add_argument(
                "--passphrase-file",
                metavar="PATH",
                type=Path,
                help=f"the passphrase is the first line of this file; default: {_VARIABLE}, or asked for",
            )

    def handle(self, *args: Any, **options: Any) -> None:
        if options["action"] == "create":
            self._create(options)
            return
        bundle = open_bundle(options["file"].expanduser().absolute(), lambda: _passphrase(options["passphrase_file"]))
        store = project_store(options["project"]) if options["project"] else bundle.manifest.store_id
        if options["action"] == "verify" or options["preview"]:
            plan = plan_bundle(bundle, store)
        else:
            with use_origin(source="cli", actor=getpass.getuser()):
                plan = apply_bundle(bundle, store)
        self._report(bundle, plan, options)

    def _create(self, options: dict[str, Any]) -> None:
        path: Path = options["file"].expanduser().absolute()
        passphrase = _passphrase(options["passphrase_file"], twice=True) if options["encrypt"] else ""
        with self.store(options):
            manifest = create_bundle(path, passphrase=passphrase, force=options["force"])
        kind = ", encrypted" if passphrase else ""
        self.stdout.write(f"wrote {counted(manifest.events, 'event')} to {path}{kind}; head {manifest.head[:12]}")

    def _report(self, bundle: Bundle, plan: Plan, options: dict[str, Any]) -> None:
        self.stdout.write(f"{plan.outcome} {plan.store}")


def _passphrase(file: Path | None, *, twice: bool = False) -> str:
    given = _first_line(file) if file else os.environ.get(_VARIABLE, "")
    if not given and not sys.stdin.isatty():
        raise Invalid(f"a passphrase is needed: set {_VARIABLE}, or name a file with --passphrase-file")
    if not given:
        given = getpass.getpass("Passphrase: ")
        if twice and getpass.getpass("Once more: ") != given:
            raise Invalid("the two passphrases differ; nothing was written")
    if not given:
        raise Invalid("an empty passphrase protects nothing; nothing was written")
    return given


def _first_line(file: Path) -> str:
    try:
        with file.expanduser().open(encoding="utf-8") as opened:
            return opened.readline(10_000).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"can't read a passphrase from {flat(str(file))}") from error
