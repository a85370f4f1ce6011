"""The checks that rules name beside their pattern: is the match a secret, and where does it begin and end?"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable

from memoryhub.core.secrets.rule import LETTERS, SecretMatch, Span, begins_word, compiled
from memoryhub.core.secrets.values import (
    entropy,
    fits,
    has_digit,
    has_letter,
    is_chosen_words,
    is_code,
    is_filler,
    is_gibberish,
    is_identifier,
    is_masked,
    is_mixed,
    is_placeholder,
    is_plain,
    is_public_name,
    is_sample,
    is_standard,
    is_template,
    is_uuid,
    looks_random,
    matches,
    reads_as_words,
)

# Each accepts a match or not; some return the secret's span, which is then longer than the match.
Check = Callable[[SecretMatch], Span | bool | None]

_MAX_KEY = 24_000
# The fewest different characters of a key; a masked one repeats a letter
_FEWEST_CHARACTERS = 14
_LINE = rb"[A-Za-z0-9+/=]+|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}"
_BREAKS = rb"(?:\s|\\{1,4}[nrt]|[\"',+])+"
_BASE64 = LETTERS | frozenset(b"+/=")
_WORD = LETTERS | frozenset(b"_")
_WEB_SAMPLE = rb"(?i)\b(?:https?|ftp):(?:\\?/){2}(?:user|username|usr|login|foo|name|abc|123|me|[a-z])?:$"
_ANY_SAMPLE = (
    rb"(?i)://(?:(?:user(?:name)?|foo|[^/:@\s]*example[^/:@\s]*)?:(?:password|pwd?|bar|key_1234)"
    rb"|anonymous:[^/:@\s]*|postgres:postgres|guest:guest|admin:admin|root:root|test:test)$"
)
# Characters that end a user and password in an address, but that people type in passwords.
_RAW = rb"[/?#]"
# A port and a path, or another address.
_NO_PASSWORD = rb"^\d{0,5}(?:[/?#]|$)|://|^[\]\[]|[{}<>]|\$[({]|^\$|/@|^(?i:port)\b"
_HOST_AFTER = rb"^[\w-]+(?:\.[\w-]+)*(?::\d|[/?\"'\s),;]|$)"
_WEB_PASSWORD = rb"(?i)pass(?:wd|word)?|pwd|pw|abc|xyz|123|[a-z]"
_NAMED = rb"(?i)passw|pwd|_pass|^pass|secret|^[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+$"
# Signs of passwords that names of packages and hosts do not have
_STRONG_SIGN = rb"[#!$%^&*+=~@]"
_PUBLIC_BEFORE = rb"(?i)public|fingerprint|hash|digest|checksum|integrity|commit|\bid\b|\bsha"
_TO_USE = (
    rb"(?i)\b(?:following|this(?: is the| is your)?|use (?:the|this)) (?:\w{1,12} ){0,2}(?:key|token|secret)\W{1,3}$"
)
# Schemes of addresses without a password, and an address that ``url-password`` reads
_ADDRESS_BEFORE = rb"(?i)(?://[^\s/]*|\b(?:mailto|xmpp|acct|sips?|im|urn|pkg|news)):$"
# Where ``once`` looks for the word again, in bytes
_NEAR = 4_000
# A line of the documentation of code
_COMMENT = rb"\s*(?:\*|///) "
_PUBLISHED = "pk_live_", "pk_test_", "diff-"
_SNOWFLAKE = rb"[MNO][\w-]{22,28}"
_DIGEST_BEFORE = rb"(?i)(?:sha\d{0,3}|md5|hash|digest|checksum|integrity)[\"' ]{0,2}[-=:]?[\"' ]{0,2}$"


def key_block(match: SecretMatch) -> Span | None:
    """Return the block up to its END line; of a truncated one, as far as it reads as a key."""
    data = match.data
    limit = min(match.limit, match.end + _MAX_KEY)
    dashes = data.find(b"-----", match.end, limit)
    shortest = 16
    if dashes >= 0 and data.startswith(b"-----END", dashes):
        shortest = 40
        closing = data.find(b"-----", dashes + 8, min(limit, dashes + 80))
        end = closing + 5 if closing >= 0 else dashes + 8
    else:
        end = _end_of_lines(data, match.end, limit)
    if len(set(data[match.end : end])) < _FEWEST_CHARACTERS:
        return None
    return (match.start, end) if end - match.end > shortest else None


def _end_of_lines(data: bytes, position: int, limit: int) -> int:
    end = position
    while position < limit:
        gap = compiled(_BREAKS).at(data, position, limit)
        if gap:
            position = gap[0][1]
        line = compiled(_LINE).at(data, position, limit)
        if line is None:
            break
        text = data[slice(*line[0])]
        if len(text) < 20 and not text.endswith(b"=") and b":" not in text:
            break
        position = end = line[0][1]
    return end


def unmasked(match: SecretMatch) -> bool:
    """Reject masks such as ``ghp_xxxxxxxx`` and zero padding."""
    return not is_masked(match.secret) and "00000000" not in match.secret


def mixed(match: SecretMatch) -> bool:
    """Require a digit and no mask: for prefixes that plain words have too."""
    return has_digit(match.secret) and not is_masked(match.secret)


def whole(match: SecretMatch) -> bool:
    return not match.after or match.after[0] not in _WORD


def unlike_words(match: SecretMatch) -> bool:
    return not reads_as_words(match.secret)


def unfilled(match: SecretMatch) -> bool:
    """Reject padding only: the position already says that it is a secret."""
    return not is_filler(match.secret)


def random(match: SecretMatch) -> bool:
    return looks_random(match.secret) and not is_placeholder(match.secret)


def no_template(match: SecretMatch) -> bool:
    """Accept any password except templates and masks."""
    return not is_template(match.secret) and not set(match.secret) <= {"*", "x", "X", "."}


def typed(match: SecretMatch) -> bool:
    """Accept any password that a person may have typed: no placeholder, no number."""
    return not is_placeholder(match.secret) and not match.secret.isdigit()


def chosen(match: SecretMatch) -> bool:
    """Accept any password except placeholders and the words that samples use."""
    secret = match.secret
    return len(secret) >= 4 and not is_placeholder(secret) and not is_sample(secret)


def login(match: SecretMatch) -> bool:
    """Accept any password in a URL except templates, and ``user:password`` in web addresses."""
    secret = match.secret
    if matches(_RAW, secret):
        following = match.data[match.end + 1 : min(match.end + 80, match.limit)].decode(errors="replace")
        if matches(_NO_PASSWORD, secret) or not matches(_HOST_AFTER, following):
            return False
    before = match.before.decode(errors="replace")
    is_sample_of_web = matches(_WEB_SAMPLE, before) and fits(_WEB_PASSWORD, secret)
    is_sample_of_any = matches(_ANY_SAMPLE, before + secret)
    return not is_sample_of_web and not is_sample_of_any and no_template(match)


def spoken(match: SecretMatch) -> bool:
    """Accept passwords as people type them: mixed case and digits, or digits and marks, and no words."""
    secret = match.secret
    is_typed = is_mixed(secret) or (has_digit(secret) and any(not c.isalnum() for c in secret))
    return is_typed and not is_plain(secret) and not is_code(secret) and chosen(match)


def said(match: SecretMatch) -> bool:
    """Accept any password between quotes; of words with spaces only phrases of three and more."""
    secret = match.secret
    return chosen(match) and (" " not in secret or (secret.count(" ") > 1 and is_chosen_words(secret)))


def answered(match: SecretMatch) -> bool:
    """Accept words with digits or signs, as people answer a question for a password."""
    secret = match.secret
    if len(secret) < 6 or not has_letter(secret) or is_standard(secret):
        return False
    is_typed = has_digit(secret) or matches(_STRONG_SIGN, secret)
    return is_typed and not is_plain(secret) and not is_code(secret) and chosen(match)


def typical(match: SecretMatch) -> bool:
    """Accept letters and digits of both cases, or with a sign that names do not have."""
    secret = match.secret
    return has_letter(secret) and (is_mixed(secret) or matches(_STRONG_SIGN, secret)) and spoken(match)


def announced(match: SecretMatch) -> bool:
    """Accept what is as random as a generated token; digits of a digest only where the words call them a key to use."""
    secret = match.secret
    text = match.data[max(0, match.start - 80) : match.start].decode(errors="replace")
    if matches(_PUBLIC_BEFORE, text) or is_plain(secret) or is_code(secret):
        return False
    if is_identifier(secret):
        return matches(_TO_USE, text)
    return is_mixed(secret) and entropy(secret) >= 3.7 and not reads_as_words(secret)


def no_public_name(match: SecretMatch) -> bool:
    """Reject the names of page tokens and public keys."""
    return not is_public_name(match.before.decode(errors="replace"))


def words(match: SecretMatch) -> bool:
    """Accept words that people choose as a password, and not those of labels, messages, types and documentation."""
    line = match.data[max(0, match.start - 120) : match.start].rpartition(b"\n")[2]
    if compiled(_COMMENT).at(line, 0, len(line)) is not None:
        return False
    return is_chosen_words(match.secret)


def once(match: SecretMatch) -> bool:
    """Reject a word that the text around repeats, as code repeats the name of a variable."""
    secret = match.data[match.start : match.end]
    return match.data.count(secret, max(0, match.start - _NEAR), match.end + _NEAR) == 1


def signed(match: SecretMatch) -> bool:
    """Accept letters with a sign that addresses do not have."""
    if matches(_ADDRESS_BEFORE, match.before.decode(errors="replace")):
        return False
    return not is_plain(match.secret) and not is_code(match.secret) and chosen(match)


def no_variable(match: SecretMatch) -> bool:
    """Reject variable names such as ``DB_PASSWORD`` and ``get_password``."""
    return not matches(_NAMED, match.secret) and not is_code(match.secret)


def no_field(match: SecretMatch) -> bool:
    """Reject the names of fields in a manual: ``PASSWORD``, ``for``."""
    return len(match.secret) >= 4 and not match.secret.isupper()


def no_word(match: SecretMatch) -> bool:
    return has_digit(match.secret) or is_gibberish(match.secret)


def no_uuid(match: SecretMatch) -> bool:
    return not is_uuid(match.secret)


def no_digest(match: SecretMatch) -> bool:
    return not matches(_DIGEST_BEFORE, match.before.decode(errors="replace"))


def strong(match: SecretMatch) -> bool:
    if match.secret.startswith(_PUBLISHED):
        return False
    secret = match.secret.rsplit("_", 1)[-1]
    is_random = is_mixed(secret) and entropy(secret) >= 3.7
    return is_random and not is_placeholder(secret) and not reads_as_words(secret)


def no_sample(match: SecretMatch) -> bool:
    """Reject masks and ids with ``EXAMPLE``, as in the documentation of AWS."""
    return "EXAMPLE" not in match.secret and unmasked(match)


def aws_secret(match: SecretMatch) -> bool:
    """Accept exactly 40 base64 characters of both cases with a digit: no git SHA, no path."""
    secret = match.secret
    if match.after and match.after[0] in _BASE64:
        return False
    if not begins_word(match.data, match.start, 0, b"./") or secret.endswith("EXAMPLEKEY"):
        return False
    return is_mixed(secret) and looks_random(secret, bits=3.9)


def basic_credentials(match: SecretMatch) -> bool:
    secret = match.secret
    try:
        decoded = base64.b64decode(secret + "=" * (-len(secret) % 4), validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and not is_placeholder(secret)


def long_enough(match: SecretMatch) -> bool:
    return match.end - match.start >= 30 and not is_filler(match.secret)


def hex_before(match: SecretMatch) -> Span | None:
    """Require 32 hexadecimal digits before the match, and include them."""
    text = match.before[-32:].decode(errors="replace")
    is_key = len(text) == 32 and set(text) <= set("0123456789abcdef") and entropy(text) > 3
    return (match.start - 32, match.end) if is_key else None


def after_bot_id(match: SecretMatch) -> bool:
    """Require a bot's number before the colon."""
    before = match.before[:-1]  # the colon is the match's, not the secret's
    is_account = before[-13:-12] == b":" and before[-12:].isdigit()  # of AWS, in the name of a resource
    return len(before) >= 8 and before[-8:].isdigit() and not is_account


def after_snowflake(match: SecretMatch) -> Span | None:
    """Require a Discord id in base64 before the match; it starts with M, N or O."""
    before = match.before[-29:]
    for size in range(len(before), 22, -1):
        start = match.start - size
        if begins_word(match.data, start, 0, b"_-") and fits(_SNOWFLAKE, before[-size:].decode(errors="replace")):
            return start, match.end
    return None


# fmt: off
_CHECKS: tuple[Check, ...] = (
    unmasked, mixed, whole, unlike_words, unfilled, random, no_template, strong, no_sample, chosen, login, spoken,
    said, answered, typical, announced, words, no_public_name, once, signed, no_variable, no_field,
    typed, no_word, no_digest, no_uuid, aws_secret, basic_credentials, long_enough, hex_before,
    after_bot_id, after_snowflake, key_block,
)
# fmt: on
# By the names that rules use
CHECKS = {check.__name__.replace("_", "-"): check for check in _CHECKS}
