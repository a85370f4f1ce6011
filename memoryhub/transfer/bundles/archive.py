"""Bundle files: a store's log as a sealed archive. Create, open and check them."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field, TypeAdapter, ValidationError

from governance.events import ImportUndone
from memoryhub import __version__
from memoryhub.core import clock, log
from memoryhub.core.disk import replacing
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.log.append import COLUMNS
from memoryhub.core.log.digests import GENESIS, HEADER, canonical_json, chain_digest, payload_digest
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import STORED, Instant, Payload, Position, Sha256
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, Scope, StoreId, current_store
from memoryhub.core.text import flat
from memoryhub.core.validation import explain
from memoryhub.transfer.jsonl import FIELDS, MAX_LINE, UNFIT, EventLine, Model, read_event, refusal, wrong

if TYPE_CHECKING:
    from memoryhub.transfer.bundles.age import FileKey


INTRO = b"memory-hub-bundle "
FORMAT_VERSION = 1
# Follows the other fields of an event; in a string, its quotation marks would be escaped.
PAYLOAD = ',"payload":'


class Manifest(Model):
    """What a bundle says of itself; the check compares it with the events."""

    scope: Literal[Scope.GLOBAL, Scope.ORG, Scope.PROJECT]
    store: str = Field(pattern=f"^{SLUG.pattern}$")
    events: Position
    head: Sha256
    made_at: Instant
    made_by: str = Field("", max_length=100)

    @property
    def store_id(self) -> StoreId:
        return GLOBAL_STORE if self.scope is Scope.GLOBAL else StoreId(self.scope, self.store)


class BundleEvent(EventLine):
    project_id: str = Field(max_length=64)
    salt: str | None = Field(pattern="^[0-9a-f]{32}$")
    payload_digest: Sha256
    chain_digest: Sha256
    # The payload as it is stored, byte for byte
    payload_json: str | None

    def row(self) -> tuple[Any, ...]:
        return _columns(self)


_AGE = b"age-encryption.org/v1\n"
_MAX_HEADER = 4096
_CHUNK = 64 * 1024
# The last line: the SHA-256 of all bytes before it, in hexadecimal digits
_SEAL = 65
# Digests and salts do not compress, so no real log comes near these.
_MAX_RATIO = 100
_FREE_BYTES = 64 * 2**20

_EVENT = TypeAdapter(BundleEvent)
_columns, _header = attrgetter(*COLUMNS), attrgetter(*HEADER)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle in a file, whose checksum holds; ``events`` can be read more than once."""

    path: Path
    key: FileKey | None
    manifest: Manifest
    # The SHA-256 that seals it, and what it seals: bytes before the events, and before the seal
    sha256: str
    start: int
    end: int

    def events(self) -> Iterator[BundleEvent]:
        """Yield the events, each checked by itself and chained to those before it.

        Raises:
            Invalid: the events are not those that the manifest describes.
        """
        previous = GENESIS
        number = 0
        for number, line in enumerate(self._lines(), 1):
            event = read_event(line, number, _EVENT, _parse_line)
            previous = chain_digest(previous, _header(event), event.payload_digest)
            if previous != event.chain_digest:
                raise wrong(number, "it, or an event before it, is not the one that was written")
            if event.project_id != self.manifest.store_id.name:
                raise wrong(number, f"it is of {event.project_id!r}, not of {self.manifest.store!r}")
            yield event
        if (number, previous) != (self.manifest.events, self.manifest.head):
            raise Invalid(f"the bundle does not have the {self.manifest.events:,} events that its manifest names")

    def _lines(self) -> Iterator[bytes]:
        remainder = b""
        for part in self._inflated():
            *lines, remainder = (remainder + part).split(b"\n")
            if len(remainder) > MAX_LINE:
                raise Invalid(f"the bundle has an event of more than {MAX_LINE // 2**20} MiB")
            yield from lines
        if remainder:
            raise Invalid("the bundle ends within an event")

    def _inflated(self) -> Iterator[bytes]:
        inflater = zlib.decompressobj()
        limit = _FREE_BYTES + _MAX_RATIO * (self.end - self.start)
        try:
            for chunk in self._squeezed():
                compressed = chunk
                while compressed:
                    part = inflater.decompress(compressed, _CHUNK)
                    compressed = inflater.unconsumed_tail
                    limit -= len(part)
                    if limit < 0:
                        raise Invalid(f"the bundle unpacks to more than {_MAX_RATIO} times its size")
                    yield part
            yield inflater.flush()
        except zlib.error as error:
            raise Invalid("the bundle's events cannot be unpacked") from error
        if not inflater.eof or inflater.unused_data:
            raise Invalid("the bundle's events are not complete")

    def _squeezed(self) -> Iterator[bytes]:
        offset = 0
        for chunk in _decrypted(self.path, self.key):
            yield chunk[max(0, self.start - offset) : max(0, self.end - offset)]
            offset += len(chunk)


def _parse_line(line: str) -> dict[str, Any]:
    # Apart, so that the stored text is what was parsed.
    header, separator, payload = line.partition(PAYLOAD)
    if not separator or not payload.endswith("}"):
        raise ValueError("it has no payload")
    payload_json = payload[:-1]
    fields: dict[str, Any] = json.loads(header + "}")
    payload = json.loads(payload_json)
    return {**fields, "payload": payload, "payload_json": None if payload is None else payload_json}


def _decrypted(path: Path, key: FileKey | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        if key is None:
            yield from iter(lambda: file.read(_CHUNK), b"")
        else:
            from memoryhub.transfer.bundles import age

            yield from age.decrypt(file, key)


def open_bundle(path: Path, passphrase: Callable[[], str]) -> Bundle:
    """Read a whole file once, and return it as a bundle.

    Args:
        path: the file.
        passphrase: called if the file is encrypted.

    Raises:
        Invalid: it is no bundle, or damaged, or the passphrase is wrong.
    """
    if not path.is_file():
        raise Invalid(f"{flat(str(path))} is not a file")
    key = _unlock_key(path, passphrase)
    digest = hashlib.sha256()
    start = tail = b""
    size = 0
    for chunk in _decrypted(path, key):
        if len(start) < _MAX_HEADER:
            start = (start + chunk)[:_MAX_HEADER]
            _require_bundle(start)
        held = tail + chunk
        digest.update(held[:-_SEAL])
        tail = held[-_SEAL:]
        size += len(chunk)
    if tail != digest.hexdigest().encode() + b"\n":
        raise Invalid("the bundle is damaged, cut or changed: its checksum does not hold; create it again")
    manifest, begin = _manifest(start)
    return Bundle(path, key, manifest, digest.hexdigest(), begin, size - _SEAL)


def _unlock_key(path: Path, passphrase: Callable[[], str]) -> FileKey | None:
    with path.open("rb") as file:
        if file.read(len(_AGE)) != _AGE:
            return None
        from memoryhub.transfer.bundles import age

        file.seek(0)
        return age.unlock(file, passphrase())


def _require_bundle(start: bytes) -> None:
    intro, _, _ = start.partition(b"\n")
    version = intro.removeprefix(INTRO)
    if not intro.startswith(INTRO) or not version.isdigit():
        raise Invalid("the file is no bundle; make one with `memory-hub bundle create`")
    if int(version[:9]) != FORMAT_VERSION:
        number = version[:9].decode()
        raise Invalid(f"the bundle has version {number}, and this version of Memory Hub reads {FORMAT_VERSION}")


def _manifest(start: bytes) -> tuple[Manifest, int]:
    lines = start.split(b"\n", 2)
    if len(lines) == 1:
        raise Invalid("the bundle's manifest is not valid: it is missing")
    try:
        return Manifest.model_validate_json(lines[1]), len(lines[0]) + len(lines[1]) + 2
    except ValidationError as error:
        raise Invalid(f"the bundle's manifest is not valid: {explain(error)}") from error


@dataclass(slots=True)
class BundleContents:
    """What a check of all events has found."""

    # The last event that the store has too
    fork: int = 0
    fork_digest: str = GENESIS
    # The last event that removes text from others
    last_removal: int = 0
    erased: set[int] = field(default_factory=set)
    redacted: dict[int, str] = field(default_factory=dict)
    # Events of undone imports
    void: set[int] = field(default_factory=set)


def check(bundle: Bundle, digests: Iterable[str] = ()) -> BundleContents:
    """Check the chain and the payloads of a bundle, and that this version can read every event.

    Args:
        bundle: whose events are read once.
        digests: the chain digests of the store with which the bundle is compared, from its first event.

    Raises:
        Invalid: an event is not the one that was written, or can't be read.
    """
    contents = BundleContents()
    store_digests = iter(digests)
    is_common = True
    # Payloads with another digest than the chain has, and those without a payload
    changed: dict[int, str] = {}
    missing: set[int] = set()
    for event in bundle.events():
        is_common = is_common and next(store_digests, None) == event.chain_digest
        if is_common:
            contents.fork = event.position
            contents.fork_digest = event.chain_digest
        if event.payload_json is None:
            missing.add(event.position)
            continue
        _note_removal(event, contents)
        digest = payload_digest(event.salt or "", event.payload_json)
        if digest != event.payload_digest:
            changed[event.position] = digest
    _require_explained(contents, changed, missing)
    return contents


def _note_removal(event: BundleEvent, contents: BundleContents) -> None:
    payload = read_payload(event)
    if event.known_type.removes_text:
        contents.last_removal = event.position
    if isinstance(payload, log.PayloadErased):
        contents.erased.update(_earlier(event, payload.positions))
    elif isinstance(payload, log.PayloadRedacted):
        _earlier(event, payload.digests)
        contents.redacted |= payload.digests
    elif isinstance(payload, ImportUndone):
        contents.void.update(_earlier(event, payload.void))


def _earlier(event: BundleEvent, positions: Collection[int]) -> Collection[int]:
    later = [position for position in positions if not 0 < position < event.position]
    if later:
        raise wrong(event.position, f"it names #{later[0]}, and there is no such event before it")
    return positions


def read_payload(event: BundleEvent) -> Payload:
    """Return the payload as the log reads it; Invalid if this version can't."""
    try:
        payload: Payload = event.known_type.schema.model_validate_json(event.payload_json or "", context=STORED)
    except UNFIT as error:
        raise refusal(event.position, error) from error
    return payload


def _require_explained(contents: BundleContents, changed: dict[int, str], missing: set[int]) -> None:
    unexplained = {position: digest for position, digest in contents.redacted.items() if position not in missing}
    differing = {position for position, _ in changed.items() ^ unexplained.items()}
    if differing:
        raise wrong(min(differing), "its payload is not the one that was written")
    if missing - contents.erased:
        raise wrong(min(missing - contents.erased), "its payload is missing, and no event records an erasure")


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
        ConflictError: the file exists.
        Invalid: it can't be written, or the store has no events.
        Unavailable: the log is not as it was written.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="bundle a store")
    if path.exists() and not force:
        raise ConflictError(f"{path} exists; use --force to overwrite")
    verified = log.verify()
    if not verified.ok:
        raise Unavailable(f"no bundle was made: {verified.describe()}; run `memory-hub doctor`")
    # One statement reads one state of the store, its head included, however long the reader takes.
    events = rows.iterate(_SELECT)
    first = next(events, None)
    if first is None:
        raise Invalid("the store has no events yet")
    manifest = _manifest_of(*first[:2])
    chunks = _sealed(manifest, chain([first], events))
    if passphrase:
        from memoryhub.transfer.bundles import age

        chunks = age.encrypt(chunks, passphrase)
    try:
        with replacing(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise Invalid(f"can't write {error.filename or path}: {error.strerror}") from error
    return manifest


def _manifest_of(events: int, head: str) -> Manifest:
    store = current_store()
    return Manifest(
        scope=store.scope,  # type: ignore[arg-type]
        store=store.name,
        events=events,
        head=head,
        made_at=clock.to_text(clock.now()),
        made_by=__version__,
    )


def _sealed(manifest: Manifest, events: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    digest = hashlib.sha256()
    for chunk in _unsealed(manifest, events):
        digest.update(chunk)
        yield chunk
    yield digest.hexdigest().encode() + b"\n"


def _unsealed(manifest: Manifest, events: Iterable[tuple[Any, ...]]) -> Iterator[bytes]:
    yield b"%s%d\n%s\n" % (INTRO, FORMAT_VERSION, canonical_json(manifest.model_dump(mode="json")).encode())
    squeezed = zlib.compressobj()
    for _, _, payload_json, *values in events:
        fields = dict(zip(_NAMES, values, strict=True))
        if payload_json is None:
            fields["erased_digest"] = fields["payload_digest"]
        line = f"{canonical_json(fields)[:-1]}{PAYLOAD}{payload_json or 'null'}}}\n"
        yield squeezed.compress(line.encode())
    yield squeezed.flush()
