"""Secrets that a structure gives away: URLs, headers, key blocks, signed tokens, context nearby."""

from __future__ import annotations

import base64
import binascii
import re

from .plausible import entropy, is_filler, is_placeholder, is_template, looks_random
from .rule import Rule, Span, rule

_BASE64 = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=")
_KEY_LINE = re.compile(r"[A-Za-z0-9+/=]{1,}|[A-Z][A-Za-z-]{2,20}: [^\n\\]{0,120}")
_BREAKS = re.compile(r"(?:\s|\\{1,4}[nrt]|[\"',+])+")
_SNOWFLAKE = re.compile(r"(?:^|[^\w-]|\\[nrt]|%[0-9A-F]{2})(?P<id>[MNO][\w-]{22,28})$")
_AZURE_START = re.compile(r"[\w~.-]{3}\d")
_MAX_KEY = 24_000


def password_of_url(match: re.Match[str]) -> Span | None:
    """Accept any password but one that is filled in later or masked."""
    value = match["secret"]
    return None if is_template(value) or set(value) <= {"*", "x", "X", "."} else match.span("secret")


def random_secret(match: re.Match[str]) -> Span | None:
    """Accept a value with letters, digits and enough entropy that is no placeholder."""
    value = match["secret"]
    return match.span("secret") if looks_random(value) and not is_placeholder(value) else None


def unfilled(match: re.Match[str]) -> Span | None:
    """Accept a value whose place alone says what it is, unless it is padding."""
    span = match.span(match.lastgroup or 0)
    return None if is_filler(match.string[slice(*span)]) else span


def aws_secret(match: re.Match[str]) -> Span | None:
    """Accept exactly 40 base64 characters of both cases with a digit: no git SHA, no path."""
    start, end = match.span("secret")
    value = match["secret"]
    longer = match.string[end : end + 1] in _BASE64 and end < len(match.string)
    mixed = value != value.lower() and value != value.upper()
    return (start, end) if mixed and not longer and looks_random(value, bits=3.9) else None


def basic_credentials(match: re.Match[str]) -> Span | None:
    """Accept base64 that decodes to ``user:password``."""
    value = match["secret"]
    try:
        decoded = base64.b64decode(value + "=" * (-len(value) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None
    return match.span("secret") if b":" in decoded and decoded.isascii() else None


def long_enough(match: re.Match[str]) -> Span | None:
    """Accept a token of at least 30 characters that is not padding."""
    return match.span() if len(match[0]) >= 30 and not is_filler(match[0]) else None


def hex_before(match: re.Match[str]) -> Span | None:
    """Accept 32 hexadecimal digits before the match, together with it."""
    start = match.start() - 32
    text = match.string[max(0, start) : match.start()]
    is_key = len(text) == 32 and set(text) <= set("0123456789abcdef") and entropy(text) > 3
    return (start, match.end()) if is_key else None


def after_bot_id(match: re.Match[str]) -> Span | None:
    """Accept the part after the colon where a bot's number stands before it."""
    start = match.start()
    return match.span("secret") if match.string[max(0, start - 8) : start].isdigit() and start >= 8 else None


def after_azure_start(match: re.Match[str]) -> Span | None:
    """Accept the rest of an Azure client secret together with the four characters before it."""
    start = max(0, match.start() - 4)
    return (start, match.end()) if _AZURE_START.fullmatch(match.string[start : match.start()]) else None


def after_snowflake(match: re.Match[str]) -> Span | None:
    """Accept the two parts after a Discord id in base64, which begins with M, N or O."""
    before = _SNOWFLAKE.search(match.string[max(0, match.start() - 33) : match.start()])
    return (match.start() - len(before["id"]), match.end()) if before else None


def key_block(match: re.Match[str]) -> Span | None:
    """Return the block up to its end line; of one that was cut short, as far as it reads as a key."""
    text, start = match.string, match.start()
    limit = min(len(text), match.end() + _MAX_KEY)
    dashes = text.find("-----", match.end(), limit)
    if dashes >= 0 and text.startswith("-----END", dashes):
        closing = text.find("-----", dashes + 8, dashes + 80)
        end = closing + 5 if closing >= 0 else dashes + 8
        return (start, end) if end - match.end() > 40 else None
    end = _end_of_key_lines(text, match.end(), limit)
    return (start, end) if end - match.end() > 16 else None


def _end_of_key_lines(text: str, position: int, limit: int) -> int:
    """Return where the lines of base64 or of headers stop."""
    end = position
    while position < limit:
        gap = _BREAKS.match(text, position, limit)
        line = _KEY_LINE.match(text, gap.end() if gap else position, limit)
        if line is None or (len(line[0]) < 20 and not line[0].endswith("=") and ":" not in line[0]):
            break
        position = end = line.end()
    return end


_GAP = r"[\w .-]{0,30}[\"'\]\\)]{0,4}\s{0,4}(?:=>|:=|[=:,]|is)?[\"'`\\\s(]{0,8}"

STRUCTURE_RULES: tuple[Rule, ...] = (
    rule(
        "url-password",
        r":(?:\\?/){2}[^\s:/?#@\"'`<>\\]{0,128}:(?P<secret>[^\s\"'`<>\\/?#]{1,256})@[\w.$%{\[-]",
        "://",
        ":\\/\\/",
        refine=password_of_url,
        inside_words=True,
    ),
    rule(
        "private-key",
        r"----(?:-| )BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?(?:-| )----",
        "-----BEGIN",
        "---- BEGIN",
        refine=key_block,
        inside_words=True,
    ),
    rule("jwt", r"eyJ[\w-]{8,2000}(?:\.[\w+/-]{0,4000}){1,4}", "eyJ", refine=long_enough, not_after="-_.+/"),
    rule("jwt-base64", r"ZXlK[\w+/-]{60,6000}={0,2}", "ZXlK", type="jwt", refine=unfilled, not_after="-_+/="),
    rule(
        "aws-secret-key",
        r"(?i:aws|secret|access.?key)" + _GAP + r"(?P<secret>[A-Za-z0-9/+]{40})",
        "aws",
        "secret",
        "access",
        refine=aws_secret,
        any_case=True,
        inside_words=True,
    ),
    rule(
        "bearer-token",
        r"(?i:bearer)[\s:]{1,4}[\"'\\]{0,2}(?P<secret>[\w.~+/-]{12,2000}={0,3})",
        "bearer",
        refine=random_secret,
        any_case=True,
    ),
    rule(
        "basic-credentials",
        r"(?i:basic)\s{1,4}(?P<secret>[A-Za-z0-9+/_-]{8,500}={0,2})",
        "basic",
        refine=basic_credentials,
        any_case=True,
    ),
    rule(
        "azure-storage-key",
        r"(?i:accountkey|sharedaccesskey)=(?P<secret>[A-Za-z0-9+/]{40,90}={0,2})",
        "accountkey=",
        "sharedaccesskey=",
        refine=unfilled,
        any_case=True,
        inside_words=True,
    ),
    rule("azure-ad-secret", r"Q~[\w~.-]{31,34}", "Q~", refine=after_azure_start, inside_words=True),
    rule("telegram-token", r":(?P<secret>AA?[\w-]{32,36})", ":A", refine=after_bot_id, inside_words=True),
    rule(
        "discord-token",
        r"\.[\w-]{6}\.[\w-]{27,45}",
        ".X",
        ".Y",
        ".Z",
        ".G",
        ".H",
        ".C",
        ".D",
        refine=after_snowflake,
        inside_words=True,
    ),
    rule("twilio-key", r"(?P<secret>SK[0-9a-f]{32})", "SK", refine=random_secret),
    rule("mailchimp-key", r"-us\d{1,2}", "-us", refine=hex_before, inside_words=True),
    rule(
        "command-line-credentials",
        r"(?:-u|--user)[ =]\\{0,3}[\"']?[\w.@-]{1,64}:(?P<secret>[^\s\"'\\]{4,128})",
        "-u ",
        "--user ",
        "--user=",
        type="password",
        refine=random_secret,
    ),
)
