"""The secret files of the home folder: one line of random text each, never blank, never half written.

Where several machines share a database, the secrets are there, and the files are copies that hooks read.
"""

# Standard library only, and nothing slow at import: hooks read the token.

from __future__ import annotations

import os

from memoryhub import env
from memoryhub.core.file_locks import lock

TYPE_CHECKING = False  # type checkers treat it like typing's; importing typing is slow
if TYPE_CHECKING:
    from collections.abc import Callable

    from memoryhub.core.errors import Unavailable

TOKEN = "token"  # noqa: S105 - a file's name
SECRET_KEY = "secret_key"  # noqa: S105 - a file's name
REDACTION_KEY = "redaction.key"
# Each secret file, and the consequence of a new secret in it.
SECRET_FILES = {
    TOKEN: "clients that send the old token need the new one",
    SECRET_KEY: "everyone has to sign in again",
    REDACTION_KEY: "a secret that was redacted before gets another tag",
}

# 128 bits in hexadecimal. The hub's own secrets have 43 characters, but people may replace a token.
MIN_LENGTH = 32
_RANDOM_BYTES = 32
_MAX_BYTES = 4096
_LOCK_SECONDS = 5.0
# How long a process uses a secret before it asks the other machines again
_AGREED_SECONDS = 30.0

# Returns the secret that all machines of the hub use, given the name and this machine's own
_agree: Callable[[str, str], str] | None = None
# By path: when the machines were asked, and what they use
_agreed: dict[str, tuple[float, str]] = {}


def agree_by(agree: Callable[[str, str], str]) -> None:
    """Let a function decide which secret this machine uses; a file with another one is replaced."""
    global _agree  # noqa: PLW0603 - set once, before Django's apps run
    _agree = agree


def read_secret(name: str) -> str:
    """Return the secret, or "" if its file is missing or blank.

    Raises:
        Unavailable: the file cannot be read, or its content is not a secret.
    """
    path = _secret_path(name)
    try:
        text = _read_text(path)
    except OSError as error:
        raise _unavailable(f"the secret file {path} cannot be read: {error.strerror}") from error
    problem = text and _problem_of(text)
    if problem:
        raise _unavailable(f"the secret file {path} {problem}; remove it, and the hub creates a new one")
    return text


def sound_secret(name: str) -> str:
    """Return the secret, or "" if there is none or it is invalid. For hooks, which must not fail."""
    try:
        text = _read_text(_secret_path(name))
    except OSError:
        return ""
    return "" if _problem_of(text) else text


def read_or_create_secret(name: str) -> str:
    """Return the secret; a missing or blank file gets 256 new random bits, or what the hub's other machines use.

    Raises:
        Unavailable: the file cannot be read or written, or its content is not a secret.
    """
    if _agree is None:
        return read_secret(name) or _create(name)
    import time  # here, because hooks only read

    path = _secret_path(name)
    asked_at, agreed = _agreed.get(path, (0.0, ""))
    if not agreed or time.monotonic() - asked_at > _AGREED_SECONDS:
        agreed = _agreed_secret(_agree, name)
        _agreed[path] = time.monotonic(), agreed
    return agreed


def _agreed_secret(agree: Callable[[str, str], str], name: str) -> str:
    from memoryhub.core.errors import Unavailable  # here, because it is too slow for a hook

    local = read_secret(name)
    try:
        agreed = agree(name, local or _new_secret())
    except Unavailable:
        if not local:
            raise
        return local  # the database is unreachable; what was agreed on is in the file
    return agreed if agreed == local else _create(name, agreed)


def secret_matches(secret: str, expected: str) -> bool:
    """Compare in constant time; a too short expected secret matches nothing."""
    import hmac  # here, because hooks only read

    same = hmac.compare_digest(secret.encode("utf-8", "replace"), expected.encode("utf-8", "replace"))
    return same and len(expected) >= MIN_LENGTH


def secret_problem(name: str) -> str:
    path = _secret_path(name)
    try:
        text = _read_text(path)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if text:
        return _problem_of(text)
    return "is empty" if os.path.lexists(path) else ""


def _secret_path(name: str) -> str:
    return f"{env.home_text()}/{name}"


def _read_text(path: str) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)  # opening a named pipe must not block
    except FileNotFoundError:
        return ""
    try:
        raw = os.read(descriptor, _MAX_BYTES + 1)
    finally:
        os.close(descriptor)
    # A power cut can leave NULs where a file was written but not synced.
    return raw.decode("utf-8", "replace").strip("\0 \t\r\n")


def _problem_of(text: str) -> str:
    if len(text) < MIN_LENGTH:
        return f"holds {len(text)} characters, and a secret needs at least {MIN_LENGTH}"
    if len(text) > _MAX_BYTES:
        return f"holds more than {_MAX_BYTES} characters"
    if not (text.isascii() and text.isprintable()) or " " in text:
        return "holds characters that are not allowed in a secret"
    return ""


def _new_secret() -> str:
    import secrets  # here, because the import takes as long as a whole hook may

    return secrets.token_urlsafe(_RANDOM_BYTES)


def _create(name: str, agreed: str = "") -> str:
    from pathlib import Path  # here, because hooks only read

    from memoryhub.core.disk import replacing

    path = _secret_path(name)
    env.prepare_home()
    try:
        folder = os.open(env.home_text(), os.O_RDONLY | os.O_DIRECTORY)
        try:
            # Lock the folder itself: a full disk may have no room for a lock file.
            if not lock(folder, seconds=_LOCK_SECONDS):
                raise TimeoutError(0, "another process holds the home folder's lock")
            text = read_secret(name)
            if text == (agreed or text) and text:
                return text
            _warn_of_new(name, path, replaced=bool(text))
            text = agreed or _new_secret()
            with replacing(Path(path)) as file:
                file.write(f"{text}\n".encode())
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise _unavailable(f"the secret file {path} cannot be written: {error.strerror}") from error
    return text


def _warn_of_new(name: str, path: str, *, replaced: bool) -> None:
    if not os.path.lexists(path):
        return
    import logging

    state = "differed from the one of the hub's other machines" if replaced else "was empty"
    message = "the secret file %s %s; it gets another secret, so %s"
    logging.getLogger(__name__).warning(message, path, state, SECRET_FILES[name])


def _unavailable(sentence: str) -> Unavailable:
    from memoryhub.core.errors import Unavailable  # here, because it imports typing, too slow for a hook

    return Unavailable(sentence)
