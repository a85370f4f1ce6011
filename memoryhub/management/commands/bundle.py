from __future__ import annotations

import getpass
import os
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from django.core.management.base import CommandParser

from memoryhub.core.errors import Invalid
from memoryhub.core.stores.store import project_store
from memoryhub.core.text import counted, flat
from memoryhub.management.base import CommandGroup, StoreCommand, use_cli_origin
from memoryhub.transfer.bundles.applying import (
    Applied,
    BundleOutcome,
    apply_bundle,
    describe_merge,
    describe_secrets,
    preview_bundle,
)
from memoryhub.transfer.bundles.archive import Bundle, create_bundle, open_bundle

_VARIABLE = "MEMORY_HUB_BUNDLE_PASSPHRASE"


class Command(StoreCommand):
    help = (
        "Move a store between machines: write its whole log with its proofs to one file, encrypted if wanted, and "
        "apply the file to another hub."
    )
    group = CommandGroup.CONTENT
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
        store = bundle.manifest.store_id
        if options["project"] is not None:
            store = project_store(options["project"])
        is_done = options["action"] == "apply" and not options["preview"]
        apply = apply_bundle if is_done else preview_bundle
        with use_cli_origin():
            applied = apply(bundle, store)
        self._report(bundle, applied, is_done=is_done)

    def _create(self, options: dict[str, Any]) -> None:
        path: Path = options["file"].expanduser().absolute()
        passphrase = ""
        if options["encrypt"]:
            passphrase = _passphrase(options["passphrase_file"], twice=True)
        with self.store(options):
            manifest = create_bundle(path, passphrase=passphrase, force=options["force"])
        kind = ", encrypted" if passphrase else ""
        self.stdout.write(f"wrote {counted(manifest.events, 'event')} to {path}{kind}; head {manifest.head[:12]}")

    def _report(self, bundle: Bundle, applied: Applied, *, is_done: bool) -> None:
        manifest = bundle.manifest
        data = {
            **manifest.model_dump(mode="json"),
            "sha256": bundle.sha256,
            "encrypted": bundle.key is not None,
            "outcome": applied.outcome,
            "done": is_done,
            "into": f"{applied.store.scope}:{applied.store.name}",
            "fork": applied.contents.fork,
            "added": applied.added,
            "merged_before": applied.merged_before,
            "secrets": applied.secrets,
            "merge": asdict(applied.merge) if applied.merge else None,
        }
        self.answer(data, _applied_lines(bundle, applied, is_done=is_done))


def _applied_lines(bundle: Bundle, applied: Applied, *, is_done: bool) -> Iterator[str]:
    manifest = bundle.manifest
    into = f"{applied.store.scope} {applied.store.name}"
    count = counted(applied.contents.events, "event")
    proof = "an export without a chain"
    if bundle.is_chained:
        proof = f"made {manifest.made_at}; its chain holds: {manifest.head[:12]}"
    yield f"{manifest.scope} {manifest.store}, {count}, {proof}"
    events = counted(applied.added, "new event")
    if applied.outcome is not BundleOutcome.ADOPTED:
        events = f"#{applied.contents.fork}, with {events}"
    yield f"{into}: {_SENTENCES[applied.outcome][is_done].format(events)}"
    if applied.merged_before:
        yield f"this is the history that was merged as #{applied.merged_before}"
    yield from describe_secrets(applied)
    if applied.merge:
        yield from describe_merge(applied.merge)


# Planned, and done
_SENTENCES = {
    BundleOutcome.ADOPTED: ("the log would be adopted as it is: {}", "the log was adopted as it is: {}"),
    BundleOutcome.FORWARDED: ("the log would go on after {}", "the log goes on after {}"),
    BundleOutcome.CONTAINED: ("has all of it; nothing to do", "has all of it; nothing was done"),
    BundleOutcome.MERGED: ("would be merged after {}", "was merged after {}"),
}


def _passphrase(file: Path | None, *, twice: bool = False) -> str:
    passphrase = os.environ.get(_VARIABLE, "")
    if file:
        try:
            with file.expanduser().open(encoding="utf-8") as opened:
                passphrase = opened.readline(10_000).rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            raise Invalid(f"can't read a passphrase from {flat(str(file))}") from error
    if not passphrase and not sys.stdin.isatty():
        raise Invalid(f"a passphrase is needed: set {_VARIABLE}, or name a file with --passphrase-file")
    if not passphrase:
        passphrase = getpass.getpass("Passphrase: ")
        if twice and getpass.getpass("Once more: ") != passphrase:
            raise Invalid("the two passphrases differ; nothing was written")
    if not passphrase:
        raise Invalid("an empty passphrase protects nothing; nothing was written")
    return passphrase
