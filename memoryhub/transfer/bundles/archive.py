"""The file of a log: an export as lines of JSON, a bundle as the same lines compressed. Write, open and check it."""

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

from pydantic import Field, ValidationError

from governance.events import ImportUndone
from memoryhub import __version__
from memoryhub.core import clock, log
from memoryhub.core.disk import replacing
from memoryhub.core.errors import ConflictError, Invalid, Unavailable
from memoryhub.core.log.digests import GENESIS, HEADER, canonical_json, chain_digest, payload_digest
from memoryhub.core.permissions import Act, demand
from memoryhub.core.schemas import Instant, Sha256
from memoryhub.core.stores import rows
from memoryhub.core.stores.store import GLOBAL_STORE, SLUG, Scope, StoreId, current_store
from memoryhub.core.text import flat
from memoryhub.core.validation import explain
from memoryhub.transfer.bundles.lines import (
    MAX_LINE,
    PAYLOAD,
    UNFIT,
    ChainedEvent,
    EventLine,
    Model,
    read_chained,
    read_event,
    refusal,
    wrong,
)

if TYPE_CHECKING:
    from memoryhub.transfer.bundles.age import FileKey


FORMAT = "memory-hub-log"
# Version 1 had neither digests nor salts: an import wrote a chain of its own
FORMAT_VERSION = 2
_UNCHAINED = 1
# How a bundle began before it had the lines of an export; the SHA-256 of the whole file was its last line
_SEALED = b"memory-hub-bundle 1\n"
_SEAL = 65

_AGE = b"age-encryption.org/v1\n"
_GZIP = b"\x1f\x8b"
# zlib's names for the two containers
_AS_GZIP, _AS_ZLIB = 31, 15
_MAX_HEADER = 4096
_CHUNK = 64 * 1024
# Digests and salts do not compress, so no real log comes near these.
_MAX_RATIO = 100
_FREE_BYTES = 64 * 2**20

_header = attrgetter(*HEADER)


class Manifest(Model):
    """What a file says of itself; the check compares it with the events."""

    scope: Literal[Scope.GLOBAL, Scope.ORG, Scope.PROJECT]
    store: str = Field(pattern=f"^{SLUG.pattern}$")
    events: int = Field(ge=0)
    # The last digest of the chain; "" if the file has none
    head: Sha256
    made_at: Instant
    made_by: str = Field("", max_length=100)

    @property
    def store_id(self) -> StoreId:
        return GLOBAL_STORE if self.scope is Scope.GLOBAL else StoreId(self.scope, self.store)


class Header(Manifest):
    format: Literal["memory-hub-log"]
    version: Literal[2]


class UnchainedHeader(Model):
    format: Literal["memory-hub-log"]
    version: Literal[1]
    store: str = Field(max_length=200)
    made_by: str = Field("", max_length=100)

    def manifest(self) -> Manifest:
        store = StoreId.parse(self.store)
        return Manifest.model_construct(scope=store.scope, store=store.name, events=0, head="", made_at="")  # type: ignore[arg-type]


class Trailer(Model):
    events: int = Field(ge=0)
    # The SHA-256 of all lines before it
    sha256: Sha256 | None = None


class Bundle:
    """An export or a bundle in a file; ``events`` can be read more than once."""

    def __init__(self, path: Path, key: FileKey | None) -> None:
        self.path = path
        self.key = key
        # The SHA-256 of what was written, before compression; set when all events were read
        self.sha256 = ""
        self._is_sealed = False
        self._digest = hashlib.sha256()
        self.manifest = self._manifest(next(self._lines(), b""))

    @property
    def is_chained(self) -> bool:
        return bool(self.manifest.head)

    def events(self) -> Iterator[EventLine]:
        """Yield the events, each checked by itself and chained to those before it.

        Raises:
            Invalid: the file is damaged, or the events are not those that it describes.
        """
        lines = self._lines()
        next(lines)
        previous = GENESIS
        number = 0
        for number, line in enumerate(lines, 1):
            if self.is_chained:
                event = read_chained(line, number, self.manifest.store_id.name)
                previous = chain_digest(previous, _header(event), event.payload_digest)
                if previous != event.chain_digest:
                    raise wrong(number, "it, or an event before it, is not the one that was written")
                yield event
            else:
                yield read_event(line, number)
        if self.is_chained and (number, previous) != (self.manifest.events, self.manifest.head):
            raise Invalid(f"the file does not have the {self.manifest.events:,} events that its manifest names")
        self.sha256 = self._digest.hexdigest()

    def _manifest(self, line: bytes) -> Manifest:
        try:
            if self._is_sealed:
                return Manifest.model_validate_json(line)
            version = _version(line)
            if version == _UNCHAINED:
                return UnchainedHeader.model_validate_json(line).manifest()
            return Header.model_validate_json(line)
        except ValidationError as error:
            raise Invalid(f"line 1: the manifest is not valid: {explain(error)}") from error

    # The header and the events, without the ends of lines
    def _lines(self) -> Iterator[bytes]:
        self._digest = hashlib.sha256()
        chunks = _decrypted(self.path, self.key)
        start = next(chunks, b"")
        if start.startswith(_SEALED):
            self._is_sealed = True
            manifest, _, compressed = start.removeprefix(_SEALED).partition(b"\n")
            self._digest.update(b"%s%s\n" % (_SEALED, manifest))
            yield manifest
            yield from _split(self._inflated(self._unsealed(chain([compressed], chunks)), _AS_ZLIB), number=1)
        elif start.startswith(_GZIP):
            yield from self._signed_lines(_split(self._inflated(chain([start], chunks), _AS_GZIP)))
        elif start.startswith(b"{"):
            yield from self._signed_lines(_split(chain([start], chunks)))
        else:
            raise Invalid(_FOREIGN)

    def _signed_lines(self, lines: Iterator[bytes]) -> Iterator[bytes]:
        for number, line in enumerate(lines):
            if number and line.startswith(b'{"events":'):
                self._check_trailer(line, number - 1, lines)
                return
            self._digest.update(line + b"\n")
            yield line
        raise Invalid("the file ends before the export does; export again, or copy the whole file")

    def _check_trailer(self, line: bytes, events: int, lines: Iterator[bytes]) -> None:
        try:
            trailer = Trailer.model_validate_json(line)
        except ValidationError as error:
            raise wrong(events + 1, explain(error)) from error
        if trailer.events != events or next(lines, None) is not None:
            what = f"the export says that it has {trailer.events:,} events"
            raise Invalid(f"{what}, and the file has other lines; export again")
        if trailer.sha256 != (self._digest.hexdigest() if self.is_chained else None):
            raise Invalid(_DAMAGED)

    def _inflated(self, chunks: Iterable[bytes], container: int) -> Iterator[bytes]:
        inflater = zlib.decompressobj(container)
        limit = _FREE_BYTES + _MAX_RATIO * self.path.stat().st_size
        try:
            for chunk in chunks:
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

    def _unsealed(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        seal = b""
        for chunk in chunks:
            chunk_with_seal = seal + chunk
            seal = chunk_with_seal[-_SEAL:]
            self._digest.update(chunk_with_seal[:-_SEAL])
            yield chunk_with_seal[:-_SEAL]
        if seal != self._digest.hexdigest().encode() + b"\n":
            raise Invalid(_DAMAGED)


_DAMAGED = "the file is damaged, cut or changed: its checksum does not hold; make it again"
_FOREIGN = (
    "the file is no export or bundle of a store; make one with `memory-hub export jsonl` or `memory-hub bundle create`"
)


def _version(line: bytes) -> int:
    try:
        data = json.loads(line[:_MAX_HEADER])
        version = data["version"] if data["format"] == FORMAT else None
    except (ValueError, TypeError, KeyError, RecursionError):
        version = None
    if version is None:
        raise Invalid(_FOREIGN)
    if version not in (_UNCHAINED, FORMAT_VERSION):
        name = str(version)[:20]
        raise Invalid(f"the file has format version {name}, and this version of Memory Hub reads {FORMAT_VERSION}")
    return int(version)


# Without their ends; the number of the first is for refusals
def _split(chunks: Iterable[bytes], *, number: int = 0) -> Iterator[bytes]:
    remainder = b""
    for chunk in chunks:
        *lines, remainder = (remainder + chunk).split(b"\n")
        number += len(lines)
        if len(remainder) > MAX_LINE:
            raise wrong(number, f"it is longer than {MAX_LINE // 2**20} MiB")
        yield from lines
    if remainder:
        raise wrong(number, "it is not one complete JSON object")


def _decrypted(path: Path, key: FileKey | None) -> Iterator[bytes]:
    with path.open("rb") as file:
        if key is None:
            yield from iter(lambda: file.read(_CHUNK), b"")
        else:
            from memoryhub.transfer.bundles import age

            yield from age.decrypt(file, key)


def _no_passphrase() -> str:
    raise Invalid("the file is encrypted; `memory-hub bundle apply` asks for its passphrase")


def open_bundle(path: Path, passphrase: Callable[[], str] = _no_passphrase) -> Bundle:
    """Read the header of an export or a bundle.

    Args:
        path: the file.
        passphrase: called if the file is encrypted.

    Raises:
        Invalid: it is neither, or the passphrase is wrong.
    """
    if not path.is_file():
        raise Invalid(f"{flat(str(path))} is not a file")
    return Bundle(path, _unlock_key(path, passphrase))


def _unlock_key(path: Path, passphrase: Callable[[], str]) -> FileKey | None:
    with path.open("rb") as file:
        if file.read(len(_AGE)) != _AGE:
            return None
        from memoryhub.transfer.bundles import age

        file.seek(0)
        return age.unlock(file, passphrase())


@dataclass(slots=True)
class BundleContents:
    """What a check of all events has found."""

    events: int = 0
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
    """Check all of a file, and that this version can read every event.

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
        contents.events = event.position
        if isinstance(event, ChainedEvent):
            is_common = is_common and next(store_digests, None) == event.chain_digest
            if is_common:
                contents.fork = event.position
                contents.fork_digest = event.chain_digest
            digest = payload_digest(event.salt or "", event.payload_json or "")
            if event.payload_json is not None and digest != event.payload_digest:
                changed[event.position] = digest
        if event.payload is None:
            missing.add(event.position)
        else:
            _note_removal(event, contents)
    if bundle.is_chained:
        _require_recorded(contents, changed, missing)
    if missing - contents.erased:
        raise wrong(min(missing - contents.erased), "its payload is missing, and no event records an erasure")
    return contents


def _note_removal(event: EventLine, contents: BundleContents) -> None:
    try:
        payload = event.stored_payload()
    except UNFIT as error:
        raise refusal(event.position, error) from error
    if event.known_type.removes_text:
        contents.last_removal = event.position
    if isinstance(payload, log.PayloadErased):
        contents.erased.update(_earlier(event, payload.positions))
    elif isinstance(payload, log.PayloadRedacted):
        _earlier(event, payload.digests)
        contents.redacted |= payload.digests
    elif isinstance(payload, ImportUndone):
        contents.void.update(_earlier(event, payload.void))


def _earlier(event: EventLine, positions: Collection[int]) -> Collection[int]:
    later = [position for position in positions if not 0 < position < event.position]
    if later:
        raise wrong(event.position, f"it names #{later[0]}, and there is no such event before it")
    return positions


def _require_recorded(contents: BundleContents, changed: dict[int, str], missing: set[int]) -> None:
    redacted = {position: digest for position, digest in contents.redacted.items() if position not in missing}
    differing = {position for position, _ in changed.items() ^ redacted.items()}
    if differing:
        raise wrong(min(differing), "its payload is not the one that was written")


# A file is of one store, and names it once
_FIELDS = (*(name for name in HEADER if name != "project_id"), "salt", "payload_digest", "chain_digest")
_SELECT = (
    "SELECT (SELECT max(position) FROM raw_events), "
    "(SELECT chain_digest FROM raw_events ORDER BY position DESC LIMIT 1), "
    f"payload_json, {', '.join(_FIELDS)} FROM raw_events ORDER BY position"
)


def export_lines() -> Iterator[str]:
    """Yield the lines of an export of the current store: a header, every event in order, their number and checksum."""
    yield from _lines_of(*_open_log())


def create_bundle(path: Path, *, passphrase: str = "", force: bool = False, is_compressed: bool = True) -> Manifest:
    """Write the current store's log to a file that only its owner can read; it appears when it is complete.

    Raises:
        ConflictError: the file exists.
        Invalid: it can't be written.
        Unavailable: the log is not as it was written.
        Forbidden: the caller may not govern the store.
    """
    demand(Act.GOVERN, to="bundle a store")
    if path.exists() and not force:
        raise ConflictError(f"{path} exists; use --force to overwrite")
    verified = log.verify()
    if not verified.ok:
        raise Unavailable(f"no file was made: {verified.describe()}; run `memory-hub doctor`")
    manifest, events = _open_log()
    chunks: Iterator[bytes] = map(str.encode, _lines_of(manifest, events))
    if is_compressed:
        chunks = _compressed(chunks)
    if passphrase:
        from memoryhub.transfer.bundles import age

        chunks = age.encrypt(chunks, passphrase)
    try:
        with replacing(path) as file:
            file.writelines(chunks)
    except OSError as error:
        raise Invalid(f"can't write {error.filename or path}: {error.strerror}") from error
    return manifest


# One statement reads one state of the store, its head included, however long the reader takes.
def _open_log() -> tuple[Manifest, Iterator[tuple[Any, ...]]]:
    events = rows.iterate(_SELECT)
    first = next(events, None)
    store = current_store()
    count, head = first[:2] if first else (0, GENESIS)
    manifest = Manifest(
        scope=store.scope,  # type: ignore[arg-type]
        store=store.name,
        events=count,
        head=head,
        made_at=clock.to_text(clock.now()),
        made_by=__version__,
    )
    return manifest, chain([first] if first else [], events)


def _lines_of(manifest: Manifest, events: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    digest = hashlib.sha256()
    for line in _unsigned_lines(manifest, events):
        digest.update(line.encode())
        yield line
    yield canonical_json({"events": manifest.events, "sha256": digest.hexdigest()}) + "\n"


def _unsigned_lines(manifest: Manifest, events: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    yield canonical_json({"format": FORMAT, "version": FORMAT_VERSION, **manifest.model_dump(mode="json")}) + "\n"
    for _, _, payload_json, *values in events:
        fields = dict(zip(_FIELDS, values, strict=True))
        # The stored JSON is taken as it is: the chain has its digest
        yield f"{canonical_json(fields)[:-1]}{PAYLOAD}{payload_json or 'null'}}}\n"


def _compressed(chunks: Iterable[bytes]) -> Iterator[bytes]:
    compressor = zlib.compressobj(wbits=_AS_GZIP)
    for chunk in chunks:
        yield compressor.compress(chunk)
    yield compressor.flush()
