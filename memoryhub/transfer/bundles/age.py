"""Encrypt and decrypt streams with a passphrase, in the age format.

The format is ``age-encryption.org/v1`` with one scrypt recipient (https://c2sp.org/age), so `age --decrypt` opens the
files. The payload is encrypted in chunks whose nonces count them and mark the last one: a chunk that is changed,
moved or missing is detected.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from memoryhub.core import ids
from memoryhub.core.errors import Invalid

INTRO = b"age-encryption.org/v1\n"
# Log2 of scrypt's cost: 128 MiB and about 0.4 s. `age` itself writes 18.
WORK_FACTOR = 17
# A file with a higher one is refused before memory is allocated: 18 takes 256 MiB.
MAX_WORK_FACTOR = 18

_LABEL = b"age-encryption.org/v1/scrypt"
_HEADER = re.compile(
    rb"age-encryption\.org/v1\n"
    rb"-> scrypt ([A-Za-z0-9+/]{22}) ([1-9][0-9]?)\n"
    rb"([A-Za-z0-9+/]{43})\n"
    rb"--- ([A-Za-z0-9+/]{43})\n"
)
_MAX_HEADER = 256
_NONCE = 16
_CHUNK = 64 * 1024
_TAG = 16
_DAMAGED = "the encrypted file is damaged, cut or changed"


@dataclass(frozen=True, slots=True)
class FileKey:
    """The key of an encrypted file, and where its payload begins."""

    secret: bytes
    start: int


def encrypt(chunks: Iterable[bytes], passphrase: str) -> Iterator[bytes]:
    file_key, salt, nonce = (ids.random_bytes(16) for _ in range(3))
    wrapped = ChaCha20Poly1305(_stretched(passphrase, salt, WORK_FACTOR)).encrypt(bytes(12), file_key, None)
    stanza = b"-> scrypt %s %d\n%s\n" % (_encoded(salt), WORK_FACTOR, _encoded(wrapped))
    header = INTRO + stanza + b"---"
    yield b"%s %s\n%s" % (header, _encoded(_mac(file_key, header)), nonce)
    cipher = ChaCha20Poly1305(_derived(file_key, nonce, b"payload"))
    for number, (chunk, is_last) in enumerate(_sized(chunks)):
        yield cipher.encrypt(_nonce(number, is_last), chunk, None)


def unlock(file: BinaryIO, passphrase: str) -> FileKey:
    """Return the key of an encrypted file.

    Raises:
        Invalid: the passphrase is wrong, or the file has another form.
    """
    start = file.read(_MAX_HEADER)
    match = _HEADER.match(start)
    if not match:
        raise Invalid("the file is encrypted, but not with a passphrase; decrypt it with `age` first")
    salt, factor, wrapped, mac = match.groups()
    if int(factor) > MAX_WORK_FACTOR:
        raise Invalid(f"the file asks for a scrypt work factor of {int(factor)}; at most {MAX_WORK_FACTOR} is accepted")
    try:
        wrapping = ChaCha20Poly1305(_stretched(passphrase, _decoded(salt), int(factor)))
        secret = wrapping.decrypt(bytes(12), _decoded(wrapped), None)
    except InvalidTag:
        raise Invalid("the passphrase is wrong, or the file's header was changed") from None
    header = match[0][: match.start(4) - 1]
    if not hmac.compare_digest(_mac(secret, header), _decoded(mac)):
        raise Invalid(_DAMAGED)
    return FileKey(secret, match.end())


def decrypt(file: BinaryIO, key: FileKey) -> Iterator[bytes]:
    file.seek(key.start)
    cipher = ChaCha20Poly1305(_derived(key.secret, file.read(_NONCE), b"payload"))
    sealed = iter(lambda: file.read(_CHUNK + _TAG), b"")
    count = 0
    for number, (chunk, is_last) in enumerate(_marked_chunks(sealed)):
        try:
            text = cipher.decrypt(_nonce(number, is_last), chunk, None)
        except InvalidTag:
            raise Invalid(_DAMAGED) from None
        if not text and number:
            raise Invalid(_DAMAGED)
        yield text
        count += 1
    if not count:
        raise Invalid(_DAMAGED)


# Chunks of one size, and whether each is the last one
def _sized(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    buffer = bytearray()
    for chunk in chunks:
        buffer += chunk
        while len(buffer) > _CHUNK:
            yield bytes(buffer[:_CHUNK]), False
            del buffer[:_CHUNK]
    yield bytes(buffer), True


def _marked_chunks(chunks: Iterable[bytes]) -> Iterator[tuple[bytes, bool]]:
    before = None
    for chunk in chunks:
        if before is not None:
            yield before, False
        before = chunk
    if before is not None:
        yield before, True


def _nonce(number: int, is_last: bool) -> bytes:  # noqa: FBT001
    return number.to_bytes(11, "big") + bytes([is_last])


def _stretched(passphrase: str, salt: bytes, factor: int) -> bytes:
    return Scrypt(salt=_LABEL + salt, length=32, n=2**factor, r=8, p=1).derive(passphrase.encode())


def _derived(secret: bytes, salt: bytes, info: bytes) -> bytes:
    return HKDF(SHA256(), length=32, salt=salt, info=info).derive(secret)


def _mac(secret: bytes, header: bytes) -> bytes:
    return hmac.digest(_derived(secret, b"", b"header"), header, "sha256")


def _encoded(data: bytes) -> bytes:
    return b64encode(data).rstrip(b"=")


# Only the canonical form: no bits are left over.
def _decoded(text: bytes) -> bytes:
    data = b64decode(text + b"=" * (-len(text) % 4))
    if _encoded(data) != text:
        raise Invalid(_DAMAGED)
    return data
