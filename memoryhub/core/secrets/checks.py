"""Checks that rules name beside their pattern. Each returns the secret's span, or None if it is not a secret."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from memoryhub.core.secrets.found import Found
from memoryhub.core.secrets.plausible import (
    entropy,
    fits,
    is_filler,
    is_gibberish,
    is_masked,
    is_mixed,
    is_placeholder,
    is_sample,
    is_template,
    is_uuid,
    looks_random,
    matches,
    reads_as_words,
)
from memoryhub.core.secrets.rule import LETTERS, Span, begins_word, compiled
from memoryhub.core.secrets.value_rules import is_code, is_plain

_MAX_KEY = 24_000
_LINE = rb"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
_BREAKS = rb"(?:\s|\\{1,4}[nrt]|[\"',+])+"


def whole_block(found: Found) -> Span | None:
    """Return the block up to its END line; of a truncated one, as far as it reads as a key."""
    data, start, head = found.data, found.start, found.end
    limit = min(found.limit, head + _MAX_KEY)
    dashes = data.find(b"-----", head, limit)
    if dashes >= 0 and data.startswith(b"-----END", dashes):
        closing = data.find(b"-----", dashes + 8, min(limit, dashes + 80))
        end = closing + 5 if closing >= 0 else dashes + 8
        return (start, end) if end - head > 40 else None
    end = _end_of_lines(data, head, limit)
    return (start, end) if end - head > 16 else None


def _end_of_lines(data: bytes, position: int, limit: int) -> int:
    end = position
    while position < limit:
        gap = compiled(_BREAKS).at(data, position, limit)
        line = compiled(_LINE).at(data, gap[0][1] if gap else position, limit)
        text = data[slice(*line[0])] if line else b""
        if line is None or (len(text) < 20 and not text.endswith(b"=") and b":" not in text):
            break
        position = end = line[0][1]
    return end


Check = Callable[[Found], Span | None]

_BASE64 = LETTERS | frozenset(b"+/=")
_WORD = LETTERS | frozenset(b"_")
_WEB_SAMPLE = rb"(?i)\b(?:https?|ftp):(?:\\?/){2}(?:user|username|usr|login|foo|name|abc|123|me|[a-z])?:$"
# Characters that end a user and password in an address, but that people type in passwords.
_RAW = rb"[/?#]"
# A port and a path, or another address.
_NO_PASSWORD = rb"^\d{0,5}(?:[/?#]|$)|://|^[\]\[]|[{}<>$]|/@|^(?i:port)\b"
_HOST_AFTER = rb"^[\w-]+(?:\.[\w-]+)*(?::\d|[/?\"'\s),;]|$)"
_WEB_PASSWORD = rb"(?i)pass(?:wd|word)?|pwd|pw|abc|xyz|123|[a-z]"
_NAMED = rb"(?i)passw|pwd|_pass|^pass|secret|^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$"
_PUBLISHED = "pk_live_", "pk_test_", "diff-"
_SNOWFLAKE = rb"[MNO][\w-]{22,28}"
_DIGEST_BEFORE = rb"(?i)(?:sha\d{0,3}|md5|hash|digest|checksum|integrity)[\"' ]{0,2}[-=:]?[\"' ]{0,2}$"


def unmasked(found: Found) -> Span | None:
    """Reject masks such as ``ghp_xxxxxxxx`` and zero padding."""
    secret = found.secret
    return None if is_masked(secret) or "00000000" in secret else found.span


def mixed(found: Found) -> Span | None:
    """Require a digit and no mask: for prefixes that plain words have too."""
    secret = found.secret
    return found.span if any(c.isdigit() for c in secret) and not is_masked(secret) else None


def whole(found: Found) -> Span | None:
    return None if found.after and found.after[0] in _WORD else found.span


def unlike_words(found: Found) -> Span | None:
    return None if reads_as_words(found.secret) else found.span


def unfilled(found: Found) -> Span | None:
    """Reject padding only: the position already says that it is a secret."""
    return None if is_filler(found.secret) else found.span


def random(found: Found) -> Span | None:
    """Require letters, digits and entropy, and no placeholder."""
    secret = found.secret
    return found.span if looks_random(secret) and not is_placeholder(secret) else None


def given(found: Found) -> Span | None:
    """Accept any password except templates and masks."""
    secret = found.secret
    return None if is_template(secret) or set(secret) <= {"*", "x", "X", "."} else found.span


def typed(found: Found) -> Span | None:
    """Accept any password that a person may have typed: no placeholder, no number."""
    secret = found.secret
    return None if is_placeholder(secret) or secret.isdigit() else found.span


def chosen(found: Found) -> Span | None:
    """Accept any password except placeholders and the words that samples use."""
    secret = found.secret
    return None if len(secret) < 4 or is_placeholder(secret) or is_sample(secret) else found.span


def login(found: Found) -> Span | None:
    """Accept any password in a URL except templates, and ``user:password`` in web addresses."""
    secret = found.secret
    if matches(_RAW, secret) and (matches(_NO_PASSWORD, secret) or not matches(_HOST_AFTER, _following(found))):
        return None
    is_web = matches(_WEB_SAMPLE, found.before.decode(errors="replace")) and fits(_WEB_PASSWORD, secret)
    return None if is_web else given(found)


def _following(found: Found) -> str:
    return found.data[found.end + 1 : min(found.end + 80, found.limit)].decode(errors="replace")


def spoken(found: Found) -> Span | None:
    """Accept passwords as people type them: mixed case and digits, or digits and marks, and no words."""
    secret = found.secret
    typed = is_mixed(secret) or (any(c.isdigit() for c in secret) and any(not c.isalnum() for c in secret))
    return chosen(found) if typed and not is_plain(secret) and not is_code(secret) else None


def no_variable(found: Found) -> Span | None:
    """Reject variable names such as ``DB_PASSWORD`` and ``get_password``."""
    return None if matches(_NAMED, found.secret) else found.span


def no_word(found: Found) -> Span | None:
    secret = found.secret
    return found.span if any(c.isdigit() for c in secret) or is_gibberish(secret) else None


def no_uuid(found: Found) -> Span | None:
    return None if is_uuid(found.secret) else found.span


def no_digest(found: Found) -> Span | None:
    """Reject values after the name of a hash, such as ``sha256=…``."""
    return None if matches(_DIGEST_BEFORE, found.before.decode(errors="replace")) else found.span


def strong(found: Found) -> Span | None:
    """Require mixed case, digits and high entropy, and no words."""
    secret = found.secret.rsplit("_", 1)[-1]
    if found.secret.startswith(_PUBLISHED):
        return None
    accepted = is_mixed(secret) and entropy(secret) >= 3.7 and not is_placeholder(secret)
    return found.span if accepted and not reads_as_words(secret) else None


def no_sample(found: Found) -> Span | None:
    """Reject masks and ids with ``EXAMPLE``, as in the documentation of AWS."""
    return None if "EXAMPLE" in found.secret else unmasked(found)


def aws_secret(found: Found) -> Span | None:
    """Accept exactly 40 base64 characters of both cases with a digit: no git SHA, no path."""
    secret = found.secret
    longer = bool(found.after) and found.after[0] in _BASE64
    inner = not begins_word(found.data, found.start, 0, b"./") or secret.endswith("EXAMPLEKEY")
    return found.span if is_mixed(secret) and not (longer or inner) and looks_random(secret, bits=3.9) else None


def basic_credentials(found: Found) -> Span | None:
    """Accept base64 that decodes to ``user:password``."""
    secret = found.secret
    try:
        decoded = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return found.span if b":" in decoded and decoded.isascii() else None


def long_enough(found: Found) -> Span | None:
    return found.span if found.end - found.start >= 30 and not is_filler(found.secret) else None


def hex_before(found: Found) -> Span | None:
    """Require 32 hexadecimal digits before the match, and include them."""
    text = found.before[-32:].decode(errors="replace")
    is_key = len(text) == 32 and set(text) <= set("0123456789abcdef") and entropy(text) > 3
    return (found.start - 32, found.end) if is_key else None


def after_bot_id(found: Found) -> Span | None:
    """Require a bot's number before the colon."""
    before = found.before[:-1]  # the colon is the match's, not the secret's
    is_account = before[-13:-12] == b":" and before[-12:].isdigit()  # of AWS, in the name of a resource
    return found.span if len(before) >= 8 and before[-8:].isdigit() and not is_account else None


def after_snowflake(found: Found) -> Span | None:
    """Require a Discord id in base64 before the match; it starts with M, N or O."""
    before = found.before[-29:]
    for size in range(len(before), 22, -1):
        start = found.start - size
        if begins_word(found.data, start, 0, b"_-") and fits(_SNOWFLAKE, before[-size:].decode(errors="replace")):
            return start, found.end
    return None


CHECKS: dict[str, Check] = {
    "unmasked": unmasked,
    "mixed": mixed,
    "whole": whole,
    "unlike-words": unlike_words,
    "unfilled": unfilled,
    "random": random,
    "given": given,
    "strong": strong,
    "no-sample": no_sample,
    "chosen": chosen,
    "login": login,
    "spoken": spoken,
    "no-variable": no_variable,
    "typed": typed,
    "no-word": no_word,
    "no-digest": no_digest,
    "no-uuid": no_uuid,
    "aws-secret": aws_secret,
    "basic-credentials": basic_credentials,
    "long-enough": long_enough,
    "hex-before": hex_before,
    "after-bot-id": after_bot_id,
    "after-snowflake": after_snowflake,
    "key-block": whole_block,
}
