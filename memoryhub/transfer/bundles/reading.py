"""Read bundles: the checksum first, then the events, each chained to those before it."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from memoryhub.core.errors import Invalid
from memoryhub.core.log.digests import GENESIS, HEADER, chain_digest
from memoryhub.core.text import flat
from memoryhub.core.validation import explain
from memoryhub.transfer.bundles.format import FORMAT_VERSION, INTRO, PAYLOAD, BundleEvent, Manifest
from memoryhub.transfer.jsonl import MAX_LINE, read_event, wrong

if TYPE_CHECKING:
    from memoryhub.transfer.bundles.age import FileKey

_AGE = b"age-encryption.org/v1\n"
_MAX_HEADER = 4096
_CHUNK = 64 * 1024
# The last line: the SHA-256 of all bytes before it, in hexadecimal digits
_SEAL = 65
# Digests and salts do not compress, so no real log comes near these.
_MAX_RATIO = 100
_FREE_BYTES = 64 * 2**20

_EVENT = TypeAdapter(BundleEvent)


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
        previous, number = GENESIS, 0
        for number, line in enumerate(self._lines(), 1):
            event = read_event(line, number, _EVENT, _parsed)
            previous = self._chained(event, previous)
            yield event
        if (number, previous) != (self.manifest.events, self.manifest.head):
            raise Invalid(f"the bundle does not have the {self.manifest.events:,} events that its manifest names")

    def _chained(self, event: BundleEvent, previous: str) -> str:
        header = [getattr(event, name) for name in HEADER]
        chained = chain_digest(previous, header, event.payload_digest)
        if chained != event.chain_digest:
            raise wrong(event.position, "it, or an event before it, is not the one that was written")
        if event.project_id != self.manifest.store_id.name:
            raise wrong(event.position, f"it is of {event.project_id!r}, not of {self.manifest.store!r}")
        return chained

    def _lines(self) -> Iterator[bytes]:
        rest = b""
        for part in self._inflated():
            *lines, rest = (rest + part).split(b"\n")
            if len(rest) > MAX_LINE:
                raise Invalid(f"the bundle has an event of more than {MAX_LINE // 2**20} MiB")
            yield from lines
        if rest:
            raise Invalid("the bundle ends within an event")

    def _inflated(self) -> Iterator[bytes]:
        inflater, limit = zlib.decompressobj(), _FREE_BYTES + _MAX_RATIO * (self.end - self.start)
        try:
            for chunk in self._squeezed():
                given = chunk
                while given:
                    part = inflater.decompress(given, _CHUNK)
                    given, limit = inflater.unconsumed_tail, limit - len(part)
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
        for chunk in _plain(self.path, self.key):
            yield chunk[max(0, self.start - offset) : max(0, self.end - offset)]
            offset += len(chunk)


def _parsed(line: str) -> dict[str, Any]:
    # Apart, so that the stored text is what was parsed.
    header, separator, payload = line.partition(PAYLOAD)
    if not separator or not payload.endswith("}"):
        raise ValueError("it has no payload")
    payload_json = payload[:-1]
    fields: dict[str, Any] = json.loads(header + "}")
    payload = json.loads(payload_json)
    return {**fields, "payload": payload, "payload_json": None if payload is None else payload_json}


def _plain(path: Path, key: FileKey | None) -> Iterator[bytes]:
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
    key = _key(path, passphrase)
    digest, start, tail, size = hashlib.sha256(), b"", b"", 0
    for chunk in _plain(path, key):
        if len(start) < _MAX_HEADER:
            start = (start + chunk)[:_MAX_HEADER]
            _require_bundle(start)
        held = tail + chunk
        digest.update(held[:-_SEAL])
        tail, size = held[-_SEAL:], size + len(chunk)
    if tail != digest.hexdigest().encode() + b"\n":
        raise Invalid("the bundle is damaged, cut or changed: its checksum does not hold; create it again")
    manifest, begin = _manifest(start)
    return Bundle(path, key, manifest, digest.hexdigest(), begin, size - _SEAL)


def _key(path: Path, passphrase: Callable[[], str]) -> FileKey | None:
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
        shown = version[:9].decode()
        raise Invalid(f"the bundle has version {shown}, and this version of Memory Hub reads {FORMAT_VERSION}")


def _manifest(start: bytes) -> tuple[Manifest, int]:
    lines = start.split(b"\n", 2)
    try:
        return Manifest.model_validate_json(lines[1]), len(lines[0]) + len(lines[1]) + 2
    except (IndexError, ValidationError) as error:
        why = explain(error) if isinstance(error, ValidationError) else "it is missing"
        raise Invalid(f"the bundle's manifest is not valid: {why}") from error
