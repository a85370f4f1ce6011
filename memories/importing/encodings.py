"""Decode text files: Unicode, or a legacy encoding if it can be determined."""

from __future__ import annotations

import codecs
import re
import unicodedata

from memoryhub.core.errors import Invalid

_BINARY = "it is binary, or its text is not in UTF-8"
_MARKS = {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_CYRILLIC = ("cp1251", "koi8_r", "cp866")
_JAPANESE = ("cp932", "euc_jp")
_IDEOGRAPHIC = (*_JAPANESE, "gb18030", "big5", "cp949")
_ENCODINGS = ["cp1252", "cp1250", *_CYRILLIC, "cp1253", "cp1254", "cp1255", *_IDEOGRAPHIC]
# Letters beside a to z that the texts of one language have
_ALPHABETS = [
    frozenset(letters)
    for letters in (
        *("àâæçéèêëîïôœùûüÿ", "äöüßé", "áéíñóúü", "ãáàâçéêíõóôú", "àèéìíòóù", "åäöé", "æøåéü", "éëèïöü", "áéíóúýþæðö"),
        *("ąćęłńóśźż", "áčďéěíňóřšťúůýž", "áäčďéíľňóôšťúýž", "áéíóöőúüű", "ăâîşţ", "čćđšž", "çğıöşüâîû"),
        *("абвгдежзийклмнопрстуфхцчшщъыьэюяё", "абвгґдеєжзиіїйклмнопрстуфхцчшщьюя", "абвгдђежзијклљмнњопрстћуфхцчџш"),
        *("абвгдеёжзійклмнопрстуўфхцчшыьэюя", "αβγδεζηθικλμνξοπρσςτυφχψωάέήίόύώ", "אבגדהוזחטיכךלמםנןסעפףצץקרשת"),
    )
]
# Bytes of another encoding: control codes, accents alone, signs and other scripts within a word of a to z
_ODD = re.compile(
    r"[\0-\x08\x0e-\x1f\x7f-\x9f\ue000-\uf8ff¨¯´¸ˇ˘˙˛˝]|[^\W\d_][¡-©«-³µ-·»-¿×÷][^\W\d_]"
    r"|[A-Za-z][Ͱ-ϿЀ-ӿ֐-׿]|[Ͱ-ϿЀ-ӿ֐-׿][A-Za-z]"
)
# A guess that is less regular than this is none
_MOST_CHAOS = 0.1
# How much a text is like the language of the best guess, and how much more than like those of the others
_COHERENCE, _AHEAD = 0.4, 0.2


def decode(raw: bytes) -> str:
    """Return the text of a file without a byte order mark.

    Raises:
        Invalid: it is binary, or in an encoding that cannot be determined.
    """
    if mark := _MARKS.get(raw[:2]):
        return _unicode(raw, mark)
    if b"\0" in raw:
        raise Invalid(_BINARY)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError:
        return _recognised(raw)


def _unicode(raw: bytes, encoding: str) -> str:
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        raise Invalid("it is binary, or its UTF-16 is damaged") from error
    if "\0" in text:
        raise Invalid(_BINARY)
    return text


def _recognised(raw: bytes) -> str:
    from charset_normalizer import from_bytes  # Only few files need it

    likely: dict[str, float] = {}
    for guess in from_bytes(raw, cp_isolation=_ENCODINGS):
        text = str(guess)
        if guess.chaos < _MOST_CHAOS and not _ODD.search(text) and _is_language(text, guess.encoding):
            likely[text] = guess.coherence
    ranked = sorted(((coherence, text) for text, coherence in likely.items()), reverse=True)
    is_clear = len(ranked) == 1 or (
        len(ranked) > 1 and ranked[0][0] >= _COHERENCE and ranked[0][0] >= ranked[1][0] + _AHEAD
    )
    if not is_clear:
        raise Invalid("its text is not in UTF-8, and in which other encoding is not certain; convert it to UTF-8")
    return ranked[0][1]


def _is_language(text: str, encoding: str) -> bool:
    letters = {letter for letter in text.lower() if letter.isalpha() and not letter.isascii()}
    if encoding not in _IDEOGRAPHIC:
        return any(letters <= alphabet for alphabet in _ALPHABETS)
    scripts = {unicodedata.name(letter, "").partition(" ")[0].partition("-")[0] for letter in letters}
    return scripts == {"HANGUL"} or scripts <= {"CJK", *(("HIRAGANA", "KATAKANA") if encoding in _JAPANESE else ())}
