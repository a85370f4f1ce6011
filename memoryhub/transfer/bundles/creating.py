"""Write the log of a store to a bundle."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from memoryhub import __version__
from memoryhub.core import clock, log
from memoryhub.core.disk import replacing
from memoryhub.core.errors import Conflict, Invalid, Unavailable
from memoryhub.core.log.digests import canonical_json
from memoryhub.core.permissions import Act, demand
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import current_store
from memoryhub.transfer.bundles.format import FORMAT_VERSION, INTRO, PAYLOAD, Manifest
from memoryhub.transfer.jsonl import FIELDS

_SELECT = (
    "SELECT (SELECT max(position) FROM raw_events), "
    "(SELECT chain_digest FROM raw_events ORDER BY position DESC LIMIT 1), "
    f"payload_json, {', '.join(FIELDS)}, project_id, salt, payload_digest, chain_digest "
    "FROM raw_events ORDER BY position"
)
_NAMES = (*FIELDS, "project_id", "salt", "payload_digest", "chain_digest")


def create_bundle(path: Path, *, passphrase: str = "", force: bool = False) -> Manifest:
    """Write the current store's log to a file that only its owner can read; it appears when it is complete.

    Raises:
        Conflict: the file exists.
        Invalid: it can't be written, or the store has no events.
        Unavailable: the log is not as it was written.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="bundle a store")
    if path.exists() and not force:
        raise Conflict(f"{path} exists; use --force to overwrite")
    verified = log.verify()
    if not verified.ok:
        raise Unavailable(f"no bundle was made: {verified.describe()}; run `memory-hub doctor`")
    # One statement reads one state of the store, its head included, however long the reader takes.
    found = rows.iterate(_SELECT)
    first = next(found, None)
    if first is None:
        raise Invalid("the store has no events yet")
    manifest = _described(*first[:2])
    chunks = _sealed(manifest, chain([first], found))
    if passphrase:
        from memoryhub.transfer.bundles import age

        chunks = age.encrypt(chunks, passphrase)
    _write(path, chunks)
    return manifest


def _described(events: int, head: str) -> Manifest:
    store = current_store()
    return Manifest(
        scope=store.scope,  # type: ignore[arg-type]
        store=store.name,
        events=events,
        head=head,
        made_at=clock.to_text(clock.now()),
        made_by=__version__,
    )


def _sealed(manifest: Manifest, found: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in _unsealed(manifest, found):
        digest.update(chunk)
        yield chunk
    yield digest.hexdigest().encode() + b"\n"


def _unsealed(manifest: Manifest, found: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    yield b"%s%d\n%s\n" % (INTRO, FORMAT_VERSION, canonical_json(manifest.model_dump(mode="json")).encode())
    squeezed = zlib.compressobj()
    for _, _, payload_json, *values in found:
        fields = dict(zip(_NAMES, values, strict=True))
        if payload_json is None:
            fields["erased_digest"] = fields["payload_digest"]
        line = f"{canonical_json(fields)[:-1]}{PAYLOAD}{payload_json or 'null'}}}\n"
        yield squeezed.compress(line.encode())
    yield squeezed.flush()


def _write(path: Path, chunks: Iterable[bytes]) -> None:
    try:
        with replacing(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise Invalid(f"can't write {error.filename or path}: {error.strerror}") from error
