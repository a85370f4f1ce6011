"""Is a value a secret? Judged by its own form and by the name that it is assigned to."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

from memoryhub.core.secrets.assignment import Assignment
from memoryhub.core.secrets.rule import compiled, spelled

_TEMPLATE = (
    rb"\$\{|\$\(|\{\{|<%|%\(|(?:^|[^\w])\$[A-Za-z_]|^<[^<>]*>?$|^\{[^{}]*\}?$|^%[sdv%A-Z]|^\$\d$|^@[A-Za-z_]+@$"
    rb"|^\[[a-z]+\]$"
)
_MASK = "xxxxx", "XXXXX", "***", "...", "…", "•••"
_FILLER = rb"^[xX*._\-#0?=]+$|0{8}"
# Placeholders, and the sample tokens of the RFCs on HTTP and OAuth
_PLACEHOLDER = (
    rb"(?i)example|sample|dummy|placeholder|change[-_ ]?(?:me|it|this)|replace[-_ ]?(?:me|with|this)"
    rb"|insert[-_ ]|redacted|todo|fixme|secret[-_]?here|goes[-_]?here|(?:key|token|password)[-_]?here"
    rb"|^your|^(?:required|nullable|sometimes)\|"
    rb"|^(?:my|the|some|any|enter|put)(?:[-_ ]|(?-i:[A-Z]))[a-z_ -]*\d{0,3}$|^<|lorem|fake"
    rb"|not[-_]a?[-_]?(?:real|secret)|^(?:real-)?secret(?:-[a-z]{1,10}|[-_]?\d{1,3}){0,3}$|a-za-z0-9|\[a-z0-9"
    rb"|^(?:QWxhZGRpbjpvcGVuIHNlc2FtZ|SlAV32hkKG|mF_9\.B5f-4\.1JqM|2YotnFZFEjr1zCsicMWpAA"
    rb"|tGzv3JOkF0XG5Qx2TlKWIA|czZCaGRSa3F0MzpnWDFmQmF0M2JW)"
)
_SAMPLE = (
    rb"(?i)(?:my|your|user|the|some|new|old|test|db|super|top|admin|root)?[-_ ]?"
    rb"(?:pass|passwd|passwords?|pwd|pw|secret|token|key|test|admin|root|user|guest|default|none|null|true|false|required"
    rb"|string|hidden|input|text|value|foo|bar|baz|asdf|field|sample|abc|xyz|postgres|mysql|mariadb|redis|mongo|rabbitmq|sa|oracle|passw0rd)"
    rb"(?:[-_ ]?(?:word|here|field|value))?|1234?|12345\d*|incorrect|invalid|optional|current|wrong|[a-z]|\d{1,3}"
)
# Words of labels, messages, types, options and names in code
_OF_INTERFACES = (
    rb"(?i)pass(?:w|\b|_|phrase|e[ds]\b|ing\b)|fail|skipped|found"
    rb"|pwd|user|\blogin|secret|token|credential|auth|crypt|(?:^|[-_ ])(?:keys?|enter|type"
    rb"|your|must|please|required|forgot\w*|invalid|should|confirm|again|account|sign|field|characters?|incorrect|wrong|cannot|not"
    rb"|none|string|optional|default|empty|least|too|match\w*|value|name|reset|change\w*|choose|new|old|input|text|label|hint|strong"
    rb"|weak|hidden|visible|hash\w*|bool\w*|number|integer|object|function|undefined|null|true|false|bytes|varchar|char|self"
    rb"|config\w*|settings?|options?|flag|argument|parameter|prompt\w*|files?|stdin|env|or|to|for|with|from|this|that|which|when"
    rb"|if|can|will|are|via|any|data|result|query|form|plain\w*|basic|digest|manual|disabled?|enabled?|protected|public|private"
    rb"|placeholder|variable|property|attribute|method|request|response|server|client|database|e-?mail)(?:$|[-_ ])"
)
# The word for a password in other languages, as translations of a form have it
_IN_TRANSLATIONS = (
    rb"(?i)kennwort|passwort|contrase|contrasin|mot[ _-]?de|senha|palavra|wachtwoord|heslo|parola|parole|senord"
    rb"|adgangskode|salasana|jelsz|sifre"
)
_WORD_CHOSEN = rb"[a-z][a-z0-9]{3,40}(?:[-_][a-z0-9]{1,20}){0,4}"
_PHRASE_CHOSEN = rb"[A-Za-z0-9'-]{1,20}(?: [A-Za-z0-9'-]{1,20}){1,7}"
# In a value this long and this random, a word such as ``EXAMPLE`` does not make it a placeholder.
_LONG, _DENSE = 60, 4.5
_SEQUENCES = "abcdefghijklmnopqrstuvwxyz0123456789abcdefghijklmnopqrstuvwxyz1234567890"
_ROWS = ("abcdefghijklmnop", "zyxwvutsrqponml", "0123456789abcdefghij")
_COMMON_PAIRS = frozenset(
    "ab ac ad ag ai al am an ap ar as at ba be bl ca ce ch ci ck cl co cr ct da de di do ea ec ed ee ef el em en ep"
    " er es et ev ex fe fi fo ge gi gr ha he hi ho ia ic id ie if ig il im in io ir is it iv iz ke la ld le li ll lo"
    " ly ma me mi mo mp na nc nd ne ng ni no ns nt oc od ol om on oo op or os ot ou ov ow pa pe pi pl po pp pr pt qu"
    " ra re ri rm ro rr rs rt ry sa sc se sh si so sp ss st su ta te th ti to tr ts tt tu ty ul un up ur us ut va ve"
    " vi yp ey pu ub rd wo".split()
)
_SHORTEST_MEAN = 2.6
_UUID = rb"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}"
_INTEGRITY = rb"(?i)^(?:sha(?:1|224|256|384|512)|md5)[-:=$]"
# Public keys and certificates in base64, in that of PEM again, and in the form of SSH
_PUBLIC_KEY = (
    rb"^(?:MII[\w+/]{5,9}gAwIBAg|M[\w+/]{4,12}ANBgkqhkiG9w0BAQ[A-Z]{2}AAO|MFkwEwYHKoZIzj0CAQYI|MHYwEAYHKoZIzj0CAQYFK4|MCowBQYDK2V"
    rb"|LS0tLS1CRUdJTiBDRVJUSUZJQ0FUR|LS0tLS1CRUdJTiBQVUJMSUMg|ssh-(?:rsa|ed25519|dss)|ecdsa-sha2|AAAA[BC]3Nz|AAAAE2Vj)"
)
_HEX = frozenset("0123456789abcdefABCDEF")
# Lower-case digests: MD5, SHA-1 or a git commit, and SHA-224 to SHA-512.
_DIGEST = rb"(?:[0-9a-f]{32}|[0-9a-f]{40}|[0-9a-f]{56}|[0-9a-f]{64}|[0-9a-f]{96}|[0-9a-f]{128})"


def matches(pattern: bytes, value: str) -> bool:
    return compiled(pattern).is_in(value)


def fits(pattern: bytes, value: str) -> bool:
    return compiled(pattern).is_all(value)


def entropy(text: str) -> float:
    size = len(text)
    return -sum(n / size * math.log2(n / size) for n in Counter(text).values())


def is_template(value: str) -> bool:
    """Return whether the value is filled in later: ``${VAR}``, ``{{ x }}``, ``<token>``, ``%s``."""
    return value.startswith("[REDACTED") or matches(_TEMPLATE, value)


def is_sequence(value: str) -> bool:
    """Return whether the value is part of the alphabet or of the digits in order, or contains such a row."""
    lowered = value.lower()
    if _ROWS[0] in value and _ROWS[0].upper() in value:
        return True
    return not is_mixed(value) and (lowered in _SEQUENCES or any(row in lowered for row in _ROWS))


def is_masked(value: str) -> bool:
    return any(mask in value for mask in _MASK)


def is_filler(value: str) -> bool:
    return is_masked(value) or len(set(value)) < min(4, len(value) - 1) or matches(_FILLER, value)


def is_placeholder(value: str) -> bool:
    if is_filler(value) or is_sequence(value) or is_template(value):
        return True
    return matches(_PLACEHOLDER, value) and not (len(value) >= _LONG and is_mixed(value) and entropy(value) >= _DENSE)


def is_sample(value: str) -> bool:
    """Return whether the value is a word that documentation uses as a password, such as ``secret``."""
    return fits(_SAMPLE, value)


def is_standard(value: str) -> bool:
    """Return whether the value is the name of an algorithm, a format or a release, such as ``sha256``."""
    return matches(_STANDARD, value)


def is_chosen_words(value: str) -> bool:
    """Return whether the value is a word or a phrase that people choose as a password.

    Labels, messages, types and names in code stand in the same places: they begin with a capital, end with a sign, or
    have words such as *your* and *field*.
    """
    if is_sample(value) or is_standard(value) or matches(_OF_INTERFACES, value) or matches(_IN_TRANSLATIONS, value):
        return False
    if " " in value:
        return fits(_PHRASE_CHOSEN, value) and (has_digit(value) or not value[0].isupper())
    return fits(_WORD_CHOSEN, value) and not is_placeholder(value)


def is_uuid(value: str) -> bool:
    return len(value) == 36 and fits(_UUID, value)


def is_identifier(value: str) -> bool:
    """Return whether the value is a complete hexadecimal digest in one case, or a UUID."""
    return is_uuid(value) or fits(_DIGEST, value) or fits(_DIGEST, value.swapcase())


def is_hex(value: str) -> bool:
    return _HEX.issuperset(value)


def reads_as_words(value: str) -> bool:
    """Return whether the value consists of words, such as ``Ed25519PrivateKey`` or ``0004_alter_user``."""
    pairs, common = _letter_pairs(value)
    # More than half must be pairs of letters, and most of these common in English words and program names; of random
    # letters, less than a quarter are.
    return pairs >= 0.5 * len(value) and common >= 0.58 * pairs and _mean_word(value) >= _SHORTEST_MEAN


def is_gibberish(value: str) -> bool:
    """Return whether the value is letters that form no words: twelve of both cases, or sixteen of any."""
    if len(value) < 12 or not value.isascii() or not value.isalpha():
        return False
    if len(value) < 16 and (value.isupper() or value[1:].islower()):
        return False
    pairs, common = _letter_pairs(value)
    most_common = 0.42 if len(value) >= 16 else 0.3
    return common <= most_common * pairs and entropy(value) >= 3.0


def _letter_pairs(value: str) -> tuple[int, int]:
    """Return how many adjacent letter pairs there are, and how many of them are common in words."""
    lowered = value.lower()
    pairs = [pair for pair in map("".join, pairwise(lowered)) if pair.isascii() and pair.isalpha()]
    return len(pairs), sum(pair in _COMMON_PAIRS for pair in pairs)


def _mean_word(value: str) -> float:
    # A capital after a lower-case letter starts another word.
    letters = sum(c.isalpha() for c in value)
    starts = sum(
        c.isalpha() and (not before.isalpha() or (before.islower() and c.isupper()))
        for before, c in pairwise(" " + value)
    )
    return letters / max(1, starts)


def has_digit(value: str) -> bool:
    return any(map(str.isdigit, value))


def has_letter(value: str) -> bool:
    return any(map(str.isalpha, value))


def looks_random(value: str, *, bits: float = 3.0) -> bool:
    return has_digit(value) and has_letter(value) and entropy(value) >= bits


def is_mixed(value: str) -> bool:
    return value != value.lower() and value != value.upper() and has_digit(value)


_PASSWORD = (
    rb"(?i)pass|paas|pwd|psw|pword|_pw$|^pw$|^p/w$|kennwort|contrase|clave$|mot[ _-]?de|^mdp$|senha"
    rb"|wachtwoord|heslo|parola|l(?:o|\xc3\xb6)senord|adgangskode|salasana|jelsz|sifre|"
    + spelled(
        *"şifre Şifre hasło Hasło пароль Пароль 密码 密碼 口令 パスワード 暗証 비밀번호 비번 패스워드 암호".split(),
        "รหัสผ่าน",
        "पासवर्ड",
        "mật khẩu",
        "Mật khẩu",
    )
)
_HARMLESS_NAME = (
    rb"(?i)(?:tokeni[sz]|tokenl?ess|secretar|passwordless|authori[sz](?:e|er|ed|ing)\b|author(?:s|ed|ing|ship)?\b|authenticated$|authorit(?:y|ies)|credentialed|bypass|compass"
    rb"|pass(?:oci|ed\b|through|ive|age|ion|eng|ing|es\b|port))"
    rb"|[._-]?(?:hash|digest|sha\d*|checksum|fingerprint|integrity|etag|count|type|name|url|uri|path|file"
    rb"|dir|field|number|length|len|size|limit|expir\w*|ttl|at|policy|pattern|regexp?|prefix|suffix|label|format|algorithm"
    rb"|hint|prompt|class|version|ref|arn|endpoint|index|kind|scope|scopes|budget|usage|column|header|param|env|var|alphabet)s?$|(?:^|[._-]|key|token|secret|client|user|session|account)ids?$|(?-i:[a-z]I[dD]s?$)|__(?:lte?|gte?|in|isnull)$"
)
_HASH_NAME = rb"(?i)commit|sha|checksum|fingerprint|integrity|etag|digest|rev"
_PUBLIC_NAME = (
    rb"(?i)public[_-]?token|websocket[_-]key|(?:next[a-z]{0,12}|page|starting|import|continuation|pagination|sync|resume|cursor|update|lock|change)[_-]?(?:page)?[_-]?token"
    rb"|(?:public|pub|publishable|cache|primary|foreign|sort|partition|idempotency|site|row|object|resource|s3|bucket)[_-]?key"
)
# A UUID assigned to such a name only identifies a repeated request.
_CLIENT_TOKEN = rb"(?i)(?:--)?client[_-]?(?:request)?[_-]?token|request[_-]?token|creator[_-]?token"
_NAME_OF_KEY = (
    rb"(?i)(?:passw(?:or)?d|passphrase|pwd|secret|token|api[_ -]?key|authorization|credentials?|private[_-]?key"
    rb"|access[_-]?key|signing[_-]?key|encryption[_-]?key|master[_-]?key)$"
)
_KEY_OF_SERVICE = rb"(?i)key$|token$|secret$|[._-](?:pat|hec|auth)$"
_SAYS_SECRET = (
    rb"(?i)key|token|secret|pass|pwd|psk|pat\b|pat[_-]|auth|cred|licen[cs]e|hec|salt|sid\b|login|access|client|api"
)
_CODE = rb"^[A-Za-z_][\w]*(?:(?:\.|::|->|\?\.)[A-Za-z_]\w*)+|[\w\]]\(|^(?:self|this|os|env|process)[.\[]|\["
_PATH = rb"^(?:[.~]{0,2}/|https?:|[A-Za-z]:\\|file:|\w+://)"
_HOST = rb"(?i)(?:[a-z0-9-]+\.)+(?:com|net|org|io|dev|app|cloud|local|internal|example|test)(?::\d+)?"
_RESOURCE = rb"arn:aws[\w-]*:.*|[a-z]{2}(?:-[a-z]+){1,3}-\d:\d{0,12}:.*"
_FILE = rb"[\w@./-]*\.(?:zip|gz|tgz|xz|json|ya?ml|txt|md|html?|js|ts|py|csv|pdf|png|jpg|svg|xml|parquet)"
_VERSIONED = rb"[A-Za-z@][\w@/+-]*[-:@]v?\d+\.\d+(?:\.[\w-]+)*(?::[\w-]+)?"
_PHRASE = rb"[A-Za-z]+(?:[-_./ :][A-Za-z]+)*_?\d{0,2}[.!?:]?"
_ALGORITHM = (
    rb"(?i)(?:aes|desede|rsa|hmac|scram|pbkdf2|scrypt|argon2(?:id|[id]))(?:[-_/][a-z]{0,3}[=\d]?[\da-z]{0,12}){1,4}"
)
# A table key that is sorted by time.
_MOMENT = rb"[A-Za-z]+#\d{4}-\d\d-\d\d(?:T[\d:.]+Z?)?"
_BETWEEN = (
    rb"(?i)(?:[\s:]*\b(?:is|was|value|here|now|for|of|to|the|this|that|you|need|api|access|auth|secret|key|token|password|user"
    rb"|account|app|client|personal|bot|admin|webhook|service|server|database|db|bearer|appid|one|cloud|dns|licen[cs]e|in|on|at|de|del|da|do|d|root|staging"
    rb"|production|prod|test|new|temporary|current|default|back|\d)\b"
    rb"|\s*\b(?:for|of|in|on|at|de|del|para|da|do|du|pour|voor|per|dla)(?:\s[\w.@'-]{1,20}){1,3}"
    rb"|[\s:]*(?:f(?:\xc3\xbc|\\{1,2}u00fc)r|"
    + spelled("от", "для", "к", "do")
    + rb")(?:\s[\w.@\x80-\xff\\-]{1,40}){1,3})*\s*"
)
# Versions, scopes, addresses of packages, places in files, names in code, public keys.
_NO_SECRETS = (
    rb"(?:npm:|workspace:|file:)?[\^~>=<v]{0,2}\d+(?:\.[\dxX*]+){1,3}(?:[-+.][\w.+-]*)?(?:/go\.mod)?",
    rb"[a-z][a-z_.-]*(?::[a-z*][a-z_.-]*){1,3}",
    rb"(?:(?:[\w-]+\.){1,3}[a-z]{2,6}|@[\w-]+)(?:/[\w.@-]{1,40})+/?",
    rb"[a-z][a-z_-]*(?:/[a-z][a-z_.-]*)+(?:/v\d+)?/?",
    rb"projects/[\w-]+/secrets/\S*",
    rb"(?:[a-z][\w-]*/)+<[\w-]+>(?:/[\w<>-]+)*",
    rb"[\w@./-]*\.\w{1,5}:\d+\S*",
    rb"(?::{1,2}|&)[A-Za-z_]\w*(?:\.\w+)*",
    rb"[A-Z][A-Z0-9_]{2,}=\S*",
    rb"pk_(?:live|test)_\w+",
    rb"\d{4}_[a-z]\w*",
    rb"magnet:\S*",
    rb"\w+=\\*[\"'].*",
)
_NUMBER = rb"[-+]?[\d.,:_/-]+(?:T[\d:.]+)?(?:Z|[+-]\d\d:?\d\d)?|0x[0-9a-fA-F]{1,8}"
_PUNCTUATION = rb"[(){};,\s]"
_BRACKETS = rb"[(){}<>;]"
_LONG_NUMBER = 20
# A value with brackets and at least this many bits per character is not code.
_ALL_SIGNS = 4.2
# This many hexadecimal digits are more often a git SHA than a secret, unless the name says otherwise.
_GIT = 40
_SIGN = rb"[^A-Za-z0-9./:]"
_MARK = rb"[^\w.\x80-\xff-]"
# A digit between letters, as in ``welcome2corp``, and names that are written so
_DIGIT_INSIDE = rb"[A-Za-z]{1,20}\d[A-Za-z]{3,20}\d{0,4}"
_STANDARD = (
    rb"(?i)^(?:base|utf|sha|md|oauth|aes|rsa|argon|http|ipv|ip|win|python|php|java|js|es|ed|curve|v|ntlmv?|tls|ssl|pbkdf"
    rb"|scram)-?\d"
)
_COMPARISONS = ("==", "===", "!=", "!==")
_JUDGED = 96
_FIRST_IDEOGRAPH = "\u2e80"


def is_secret_name(name: str) -> bool:
    """Return whether a key names a secret: ``db_password``, ``apiKey``, ``Authorization``."""
    return matches(_NAME_OF_KEY, name)


def is_public_name(name: str) -> bool:
    """Return whether a name is that of a page token, a public key or a table key."""
    return matches(_PUBLIC_NAME, name)


def is_name_of_key(name: str) -> bool:
    """Return whether a service's name ends like that of its key: ``splunk_hec_token``, ``statuspage-key``."""
    return matches(_KEY_OF_SERVICE, name) and not matches(_HARMLESS_NAME, name) and not matches(_PUBLIC_NAME, name)


def names_secret(name: str) -> bool:
    """Return whether the name marks a digest or UUID as a secret; a service's name alone does not."""
    return matches(_SAYS_SECRET, name)


def is_assigned(read: Assignment, name: str, value: str) -> bool:
    """Return whether the value is assigned: by a sign, or by standing next to the name and being random."""
    if read.words.strip() and not fits(_BETWEEN, read.words.decode(errors="replace")):
        return False
    if not read.quoted and (read.called or is_code(value[:_JUDGED])):
        return False
    if read.sign in (",", "("):
        return read.quoted and (is_uuid(value) or is_random(value[:_JUDGED]))
    if read.sign in _COMPARISONS:
        return read.quoted
    return read.sign not in ("", "is", "was") or _is_named_value(name, value[:_JUDGED], quoted=read.quoted)


def _is_named_value(name: str, value: str, *, quoted: bool) -> bool:
    if quoted and matches(_PUNCTUATION, value):
        return False
    # A capital, two digits and a mark, as forms for passwords ask for: ``Winter2024!``
    is_typical = len(value) >= 8 and is_mixed(value) and sum(c.isdigit() for c in value) > 1 and matches(_SIGN, value)
    if is_typical and matches(_PASSWORD, name):
        return True
    if len(value) >= 12 and looks_random(value, bits=3.2):
        return not reads_as_words(value)
    if matches(_PASSWORD, name) and len(value) >= 8 and fits(_DIGIT_INSIDE, value) and not matches(_STANDARD, value):
        return True
    is_typed = is_mixed(value) or (has_digit(value) and matches(_MARK, value))
    return is_typed and len(value) >= 8 and matches(_PASSWORD, name) and not reads_as_words(value)


def is_secret_value(name: str, value: str, *, quoted: bool = True) -> bool:
    """Return whether a value assigned to ``name`` is a secret, by its length, characters and entropy."""
    head = value[:_JUDGED]
    if not may_be_secret(name, head) or matches(_HARMLESS_NAME, name) or matches(_PUBLIC_NAME, name):
        return False
    if any(c.isspace() for c in value) or is_plain(head) or (is_hex(head) and matches(_HASH_NAME, name)):
        return False
    if is_uuid(head) and fits(_CLIENT_TOKEN, name):
        return False
    if matches(_PASSWORD, name):
        return _is_password(head, quoted=quoted)
    return _is_token(head) or (is_secret_name(name) and _is_numbered(head))


def is_key_value(name: str, value: str) -> bool:
    """Return whether a value assigned to a name with just ``key`` is as random as a generated secret."""
    head = value[:_JUDGED]
    if (
        len(head) < 16
        or not has_digit(head)
        or matches(_PUBLIC_NAME, name)
        or matches(_HARMLESS_NAME, name)
        or is_plain(head)
    ):
        return False
    return looks_generated(head)


def looks_generated(value: str) -> bool:
    if len(value) < 16 or any(c.isspace() or c in "{}" for c in value) or is_uuid(value) or reads_as_words(value):
        return False
    if is_hex(value):
        return len(value) >= 20 and (len(value) != _GIT or is_mixed(value)) and entropy(value) >= 3.2
    return looks_random(value, bits=3.5) and (is_mixed(value) or len(value) >= 24)


def is_random(value: str) -> bool:
    return len(value) >= 10 and looks_random(value, bits=3.0) and not reads_as_words(value) and not is_plain(value)


def is_plain(value: str) -> bool:
    """Return whether a value is a placeholder, a digest with its algorithm, a path, a host or a number."""
    if is_placeholder(value) or matches(_PUBLIC_KEY, value) or matches(_INTEGRITY, value):
        return True
    if matches(_PATH, value) or _is_number(value):
        return True
    return any(fits(form, value) for form in (_HOST, _VERSIONED, _RESOURCE, _FILE, _ALGORITHM, _MOMENT, *_NO_SECRETS))


def _is_number(value: str) -> bool:
    return fits(_NUMBER, value) and (len(value) < _LONG_NUMBER or not value.isdigit())


def is_code(value: str) -> bool:
    """Return whether the value reads as a call, an index or a dotted name rather than as a literal."""
    if not matches(_CODE, value):
        return False
    if "(" in value or "[" in value:
        return True
    parts = value.replace("::", ".").replace("->", ".").split(".")
    return not any(len(part) >= 8 and looks_random(part, bits=2.7) and not reads_as_words(part) for part in parts)


def may_be_secret(name: str, value: str) -> bool:
    """Cheaply reject impossible values: a token has a digit, a password a digit or a mark."""
    if has_digit(value):
        return True
    return (matches(_PASSWORD, name) and matches(_MARK, value)) or is_gibberish(value)


def _is_password(value: str, *, quoted: bool) -> bool:
    if len(value) < 6 or is_code(value) or _is_sentence(value):
        return False
    generated = has_digit(value) or (quoted and matches(_MARK, value)) or is_gibberish(value)
    return generated and entropy(value) >= 2.2


def _is_sentence(value: str) -> bool:
    """Return whether the value is a sentence in a language that writes without spaces."""
    return sum(c >= _FIRST_IDEOGRAPH for c in value) * 2 > len(value)


def _is_numbered(value: str) -> bool:
    # Words with digits, this long, under the name of a secret are the secret: ``maple-river-stone-4821``.
    return len(value) >= 20 and sum(c.isdigit() for c in value) > 1 and not fits(_PHRASE, value) and not is_code(value)


def _is_token(value: str) -> bool:
    if is_gibberish(value):
        return True
    if len(value) < 10 or fits(_PHRASE, value) or reads_as_words(value):
        return False
    if matches(_BRACKETS, value) and entropy(value) < _ALL_SIGNS:
        return False
    if value.isdigit():
        return entropy(value) >= 2.8
    return is_uuid(value) or looks_random(value, bits=2.9)
