"""Words of texts and questions: folding, shaping for the index, search terms and their forms in other languages."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache, lru_cache
from itertools import chain, filterfalse, pairwise
from typing import Any

_WORD = re.compile(r"[^\W_]+")
_NAME = re.compile(r"[^\W_]+(?:[-._/:\\]{1,2}[^\W_]+){1,7}")
_ISO_DATE = re.compile(r"\b(\d{4})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b")
# The beginning of a commit's id, or all of it, in the lengths that people shorten it to
_HASH = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,64}")
_SHORT_HASHES = (7, 8, 9, 10, 12)
_MAX_TERMS = 32
_MAX_PHRASES = 4

# English stop words, and what remains of contractions
STOP_WORDS = frozenset(
    """a about after all also am an and any are as at be because been before being but by can could did do does doing
    down during each few for from further had has have having he her here hers him his how i if in into is it its itself
    just me more most my no nor not now of off on once only or other our ours out over own same she should so some such
    than that the their theirs them then there these they this those through to too under until up us very was we were
    what when where which while who whom why will with would you your yours d ll m re s t ve""".split()
)


# English words that say nothing of a subject: searched for, but a question of nothing else is about nothing
COMMON_WORDS = STOP_WORDS.union(
    """allow already always another anything available back become best better bring call case change come current does
    done easily easy else even ever every everything example exist expect find first get getting give go going good got
    happen happens help however instead keep kind know last let like look made make makes making many may maybe mean
    might much must need needed needs never new next nothing often old one ones part please possible problem put really
    right said say says see seem set several show something sometimes still stuff sure take tell thing things think time
    try two use used useful uses using usually want way ways well whether within without work working works wrong
    yes""".split()
)


# English verbs whose forms have no common stem: base, past, participle. Verbs among the common words are left out.
_IRREGULAR_VERBS = """
    arise arose arisen, awake awoke awoken, bear bore borne, beat beaten, begin began begun, bend bent, bind bound,
    bite bit bitten, bleed bled, blow blew blown, break broke broken, breed bred, build built, burn burnt,
    buy bought, catch caught, choose chose chosen, cling clung, creep crept, deal dealt, dig dug, draw drew drawn,
    dream dreamt, drink drank drunk, drive drove driven, eat ate eaten, fall fell fallen, feed fed, feel felt,
    fight fought, flee fled, fly flew flown, forbid forbade forbidden, forget forgot forgotten,
    forgive forgave forgiven, freeze froze frozen, grind ground, grow grew grown, hang hung, hear heard,
    hide hid hidden, hold held, kneel knelt, lay laid, lead led, leap leapt, learn learnt, leave left, lend lent,
    light lit, lose lost, meet met, mistake mistook mistaken, overcome overcame, override overrode overridden,
    overwrite overwrote overwritten, pay paid, prove proven, rebuild rebuilt, resend resent,
    rewrite rewrote rewritten, ride rode ridden, ring rang rung, rise rose risen, run ran, seek sought, sell sold,
    send sent, sew sewn, shake shook shaken, shine shone, shoot shot, shrink shrank shrunk, sing sang sung,
    sink sank sunk, sit sat, sleep slept, slide slid, speak spoke spoken, speed sped, spell spelt, spend spent,
    spill spilt, spin spun, spring sprang sprung, stand stood, steal stole stolen, stick stuck, sting stung,
    strike struck, strive strove striven, swear swore sworn, sweep swept, swell swollen, swim swam swum,
    swing swung, teach taught, tear tore torn, throw threw thrown, understand understood,
    undertake undertook undertaken, undo undid undone, wake woke woken, wear wore worn, weave wove woven, weep wept,
    win won, wind wound, withdraw withdrew withdrawn, write wrote written
"""
_VERBS = {form: tuple(verb.split()) for verb in _IRREGULAR_VERBS.split(",") for form in verb.split()}


class Term(str):
    """A search term with further forms that count as the same word; one that ends with ``*`` is a prefix."""

    forms: tuple[str, ...] = ()


def forms_of(word: str) -> tuple[str, ...]:
    return word.forms if isinstance(word, Term) else ()


def all_forms(words: Iterable[str]) -> list[str]:
    forms: list[str] = []
    for word in words:
        forms += (word, *forms_of(word))
    return forms


def is_prefix(form: str) -> bool:
    return form.endswith("*") and form[0].isalnum()


def term(word: str, forms: Iterable[str]) -> str:
    """Return a word as a search term, with its further forms."""
    further = tuple(form for form in dict.fromkeys((*forms_of(word), *forms)) if form != word)
    if not further:
        return word
    result = Term(word)
    result.forms = further
    return result


@dataclass(frozen=True, slots=True)
class SourceHint:
    """Wording by which a question asks for one source, such as "what did we decide" for decisions."""

    source: str
    # Matches such a question
    pattern: re.Pattern[str]
    # Words that name the source instead of the subject: not search terms
    words: re.Pattern[str]
    # Factor on the scores of the source's documents
    weight: float


_hints: list[SourceHint] = []


def define_source_hint(source: str, *, pattern: str, words: str, weight: float) -> None:
    """Register a ``SourceHint``; the patterns ignore case."""
    _hints.append(SourceHint(source, re.compile(pattern, re.IGNORECASE), re.compile(words, re.IGNORECASE), weight))


def hints_in(question: str) -> tuple[SourceHint, ...]:
    return tuple(hint for hint in _hints if hint.pattern.search(question))


def terms(question: str) -> list[str]:
    """Return the distinct search terms; stop words only if nothing else is left.

    A camelCase name gives the whole and its parts; unspaced text every adjacent pair of characters; a date such as
    2023-05-08 its day and month in words.
    """
    plain = folded(question)
    return list(terms_without(plain, hints_in(plain)))


def terms_without(question: str, hints: Sequence[SourceHint]) -> tuple[str, ...]:
    subject = question
    for hint in hints:
        subject = hint.words.sub(" ", subject)
    words = list(dict.fromkeys(_words_of(subject)))
    languages = languages_of(words)
    telling = telling_words(words, languages)
    if not telling:
        telling = list(dict.fromkeys(_words_of(question)))
    chinese = chinese_forms(subject)
    return tuple(term(word, _further_forms(word, languages, chinese)) for word in telling[:_MAX_TERMS])


def telling_words(words: Sequence[str], languages: Sequence[str] | None = None) -> list[str]:
    """Return words without stop words, those of English and of the languages that the words may be in."""
    if languages is None:
        languages = languages_of(words)
    foreign = frozenset().union(*map(STOP_WORDS_OF.__getitem__, languages))
    return [word for word in words if word not in STOP_WORDS and without_accents(word) not in foreign]


def _further_forms(word: str, languages: Sequence[str], chinese: Mapping[str, Sequence[str]]) -> Iterable[str]:
    if _HASH.fullmatch(word):
        return (f"{word}*", *(word[:length] for length in _SHORT_HASHES if length < len(word)))
    if UNSPACED.match(word):
        return chinese.get(word, ())
    return other_forms(word, languages) if languages else _verb_forms(word)


def _verb_forms(word: str) -> tuple[str, ...]:
    bases = [word, word.removesuffix("s")]
    if word.endswith("ing"):
        stem = word.removesuffix("ing")
        bases += [stem, f"{stem}e", stem[:-1]]  # building, writing, running
    return next(filter(None, map(_VERBS.get, bases)), ())


def phrases(question: str) -> list[str]:
    """Return names of several parts (``a.b_c``, ``src/a.py:3``, ``write-ahead``), each as its words."""
    names = [" ".join(_WORD.findall(name.lower())) for name in _NAME.findall(folded(question))]
    return list(dict.fromkeys(names))[:_MAX_PHRASES]


def match_any(words: Iterable[str]) -> str:
    quoted: list[str] = []  # so that no word is an operator
    for form in all_forms(words):
        text, is_beginning = indexed_form(form)
        quoted.append(f'"{text}"*' if is_beginning else f'"{text}"')
    return " OR ".join(quoted)


def indexed_form(word: str) -> tuple[str, bool]:
    """Return the text that stands for a form in the index, and whether it is the beginning of a word only."""
    if is_prefix(word):
        return word[:-1], True
    # A single character of an unspaced run is indexed as the first of a pair, so it needs a prefix query
    if len(word) == 1 and UNSPACED.match(word):
        return word, True
    return sign_word(word), False


def _words_of(question: str) -> Iterator[str]:
    yield from signs_in(question)
    for year, month, day in _ISO_DATE.findall(question):
        yield from (str(int(day)), MONTHS[int(month) - 1].lower(), year)
    for token in _WORD.findall(_ISO_DATE.sub(" ", question)):
        if not token.isascii() and UNSPACED.search(token):
            for run in UNSPACED.findall(token):
                yield from pairs(run) or [run]
            yield from UNSPACED.sub(" ", token).lower().split()
        else:
            yield token.lower()
            yield from map(str.lower, name_parts(token))


# Combining accents that no composed letter has, and soft hyphens: ignored
_UNCOUNTED = re.compile("[\u0300-\u036f\u00ad]+")
# Characters that folding leaves alone and that never combine: the fast path through most texts
_PLAIN_RUN = re.compile("[\x00-\x7f\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3]{2,}")
# Characters that combine with the one before although they are not marks: Korean letters and the voicing of kana
_JOINING = re.compile("[\u1160-\u11ff\uff9e\uff9f\uffa0-\uffdc]")

# Letters whose plain form is no matter of accents
_PLAIN_LETTERS = str.maketrans(
    {"ß": "ss", "ẞ": "SS", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "ø": "o", "Ø": "O"}
    | {"đ": "d", "Đ": "D", "ł": "l", "Ł": "L", "ı": "i", "ё": "е", "Ё": "Е"}
)

_WITH_PLAIN_FORM = re.compile(f"[{''.join(map(chr, _PLAIN_LETTERS))}]")

# For each character of a folded text, start and end of its source in the original
Places = list[tuple[int, int]]


def folded(text: str) -> str:
    """Return a text in NFKC, without accents that no composed letter has, and ``ß`` as ``ss``."""
    if text.isascii():
        return text
    plain = _UNCOUNTED.sub("", unicodedata.normalize("NFKC", text))
    return plain.translate(_PLAIN_LETTERS) if _WITH_PLAIN_FORM.search(plain) else plain


def folded_with_places(text: str) -> tuple[str, Places | None]:
    """Return a folded text and the source range of each character; None if nothing changed."""
    if folded(text) == text:
        return text, None
    parts, places = [], Places()
    for start, end in _pieces(text):
        part = text[start:end]
        if part.isascii() or (end - start > 1 and _PLAIN_RUN.fullmatch(part)):
            places += zip(range(start, end), range(start + 1, end + 1), strict=True)
        else:
            part = folded(part)
            places += [(start, end)] * len(part)
        parts.append(part)
    return "".join(parts), places


# Ranges that can be folded separately: plain runs, and single characters with what combines with them
def _pieces(text: str) -> Iterator[tuple[int, int]]:
    start = 0
    while start < len(text):
        run = _PLAIN_RUN.match(text, start)
        end = run.end() - 1 if run else start + 1  # the last character of a run may combine with the next
        while not run and end < len(text) and _joins(text[end]):
            end += 1
        yield start, end
        start = end


@lru_cache(maxsize=4096)
def _joins(character: str) -> bool:
    return unicodedata.category(character).startswith("M") or bool(_JOINING.match(character))


# A capital after a small letter or digit, or the last of several capitals before small letters. The pattern begins with
# the capital because capitals are rare: this takes a fifth of the time.
_HUMP = re.compile(r"[A-Z](?:(?<=[a-z0-9].)|(?<=[A-Z].)(?=[a-z]{2}))")
# Part of a camelCase name
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_LONGEST_NAME = 80

# Runs of Chinese, Japanese or Korean, which have no spaces between words
UNSPACED = re.compile(
    "[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f]+",
)

# Emoji without their colour and variation; flags are two letters
_EMOJI = re.compile(
    "[\U0001f1e6-\U0001f1ff]{2}|[\u231a-\u23ff\u2600-\u27bf\u2b1b-\u2b55\U0001f000-\U0001f3fa\U0001f400-\U0001faff]"
)
_CRON_FIELD = r"(?:\*|\d\d?|[A-Z]{3})(?:[-/,](?:\*|\d\d?|[A-Z]{3}))*"
_CRON = re.compile(rf"(?<![\w*/])(?:{_CRON_FIELD} +){{4}}{_CRON_FIELD}(?![\w*/])")

MONTHS = "January February March April May June July August September October November December".split()


def shaped(text: str) -> str:
    """Return a text as it is indexed: folded, with parts of camelCase names, unspaced runs split into pairs."""
    # A run of n characters becomes n words: every adjacent pair, and the last character
    signs = signs_in(text)
    if not text.isascii():
        text = UNSPACED.sub(lambda run: f" {' '.join([*pairs(run[0]), run[0][-1]])} ", folded(text))
    if signs:
        text = f"{text}\n{' '.join(map(sign_word, signs))}"
    if not _HUMP.search(text):
        return text
    parts = chain.from_iterable(map(name_parts, _WORD.findall(text)))
    return f"{text}\n{' '.join(parts)}"


def signs_in(text: str) -> list[str]:
    """Return the emoji and the cron lines of a text, of which the tokenizer would leave nothing or a few numbers."""
    signs: list[str] = []
    if "*" in text:
        signs += [" ".join(line.split()) for line in _CRON.findall(text) if "*" in line]
    if not text.isascii():
        signs += _EMOJI.findall(text)
    return signs


def sign_word(sign: str) -> str:
    """Return the word by which an emoji or a cron line is indexed; other words, and names of several, as they are."""
    if sign.replace(" ", "").isalnum():
        return sign
    return f"sign{sign.encode().hex()}"


def pairs(run: str) -> list[str]:
    return list(map("".join, pairwise(run)))


def name_parts(token: str) -> list[str]:
    """Return the parts of a camelCase name; empty for any other token."""
    if len(token) > _LONGEST_NAME or not _HUMP.search(token):
        return []
    return PART.findall(token)


def date_words(moment: datetime) -> str:
    return f"{moment.day} {MONTHS[moment.month - 1]} {moment.year}"


# Function words by language, as Snowball names it: they name the language of a question and are not searched for.
# Without accents, as people often leave these out.
_STOP_WORDS = {
    "german": """aber alle alles als alte alten am andere anderen auch auf aus bei beim bis da dabei damit
        dann das dass dem den der des die dies diese diesem diesen dieser dieses doch durch ein eine einem einen
        einer eines er es fur gab gegen geht gibt habe haben hat hatte hatten ich ihr ihre im ist ja jede jeder
        jedes kann kein keine keinen konnen man mehr mich mir mit muss mussen nach nicht noch nur ob oder ohne
        sehr sein seine seit sich sie sind soll sollen sollte sondern uber um und uns unser unsere unter vom von
        vor wann war waren warum was weil welche welchem welchen welcher welches wem wen wenn wer werden wie
        wieder wieviel wieviele wir wird wo wofur woher wohin wollte wozu wurde wurden zu zum zur zwischen viele
        vielen in an so ueber fuer koennen muessen wuerde wofuer darf durfen""",
    "spanish": """al algo antes aquel aquella asi como con contra cual cuales cualquier cuando cuanta cuantas
        cuanto cuantos de debe deben del desde donde durante el ella ellas ellos en entre era eran es esa ese
        eso esta estaba estaban estado estan estar estas este esto estos fue fueron ha hace hacia han hasta hay
        haya la las le les lo los mas mejor mi mis mismo muy nos nosotros nuestra nuestro nuestros o os otra
        otro otros para pero poco por porque puede pueden que quien quienes se sea ser si sido sin sobre solo
        son su sus tambien te tenemos tiene tienen todo todos tu un una unas uno unos y ya""",
    "french": """alors apres au aucun aucune aussi autre autres aux avant avec avoir c car ce ceci cela celle
        celui ces cet cette ceux chaque comme comment d dans de depuis des dois doit donc dont du elle elles en
        encore entre est et etait etaient ete etre eu faire fait faut il ils j je jusqu l la laquelle le lequel
        les leur leurs lors lui ma mais meme mes moi moins mon n ne ni nos notre nous on ont ou par parce pas
        pendant peu peut peuvent plus pour pourquoi qu quand que quel quelle quelles quels qui quoi sa sans se
        selon sera ses si son sont sous sur ta te tous tout toute toutes tres tu un une vers vos votre vous y
        combien""",
    "italian": """a agli ai al alla alle allo anche ancora avere aveva c che chi ci cio come con contro cosa
        cui da dagli dai dal dalla dalle dallo degli dei del dell della delle dello deve di dopo dove durante e
        ed era erano essere fa fatto fino fra gia gli ha hanno i il in io l la le lei li lo loro ma mai meno mi
        molto ne negli nei nel nella nelle nello no noi non nostra nostro o ogni oppure per perche piu poi prima
        puo qual quale quali quando quanta quante quanti quanto quella quelle quelli quello questa queste questi
        questo qui se sei senza si sia solo sono sopra sta stata state stati stato su sua sue sugli sui sul
        sulla sulle suo tra tutti tutto un una uno viene vengono volta""",
    "portuguese": """a ainda algum alguma ao aos apenas apos aquela aquele as ate cada com como contra da das de
        dela dele depois desde deve do dos durante e ela elas ele eles em entre era eram essa esse esta estao
        estas este estes estou eu fazer foi foram ha isso isto ja lhe mais mas me mesmo meu minha muito na nao
        nas nem no nos nossa nosso num numa o onde os ou outra outro para pela pelas pelo pelos pode podem por
        porque pra qual quais quando quanta quantas quanto quantos que quem se sem ser seu seus sido so sob
        sobre sua suas tambem te tem temos ter tinha todo todos tudo um uma umas uns vai voce""",
    "russian": """а без более больше бы был была были было быть в вам вас ваш весь во вот все всё вы где да
        даже для до его ее её если есть еще ещё же за зачем здесь и из или им их к как какая какие каким какими
        какого какое какой каком кем ко когда кого которая которое которые который кто куда ли между меня мне
        может можно мой мы на над надо нам нас наш не него нее неё нет ни них но ну о об один он она они оно от
        перед по под почему при про с сам свой себя сейчас сколько со так такой там то тогда того тоже только
        том тот ты у уже чего чем что чтобы чья эта эти это этого этой этом этот я""",
}
STOP_WORDS_OF = {language: frozenset(words.split()) for language, words in _STOP_WORDS.items()}
# Words among these that English questions, names or code contain, too: they alone do not make a question foreign
_AMBIGUOUS = frozenset(
    """a ai al all alle als also alter am an ao as au aus aux avant bei bis c car ce chi ci com come comment con
    contra d da dal das de dei del dele dem den der des di die dies do dois dont dos dove du e ed el em en er
    era es est este et eu fa fait fino fra fur ha hat hay i ici il im in io j ja l la las le les li lo los lui
    ma mai main man mas me mes mi min mir mis mit mon n na ne ni no non nor nos num o ob on ont or os ou par
    para pas per plus post pour prima pro quanta qui sa sans se sea sei ser si sin so sobre solo son sta state
    su sub sui sur ta te tem ter todo todos tous tra tu uber um un una uno uns vai vers via volta vom von war
    was wo y zu""".split()
)
_TELLING = frozenset().union(*STOP_WORDS_OF.values()) - _AMBIGUOUS
# So many of them do, if there is no English stop word
_MANY_AMBIGUOUS = 2
LATIN = ("german", "spanish", "french", "italian", "portuguese")
# Letters that name a language
_LETTERS = {
    "german": frozenset("äöü"),
    "spanish": frozenset("ñáéíóúü"),
    "french": frozenset("çàâèéêëîïôùû"),
    "italian": frozenset("àèéìòù"),
    "portuguese": frozenset("ãõçáâéêíóôú"),
}
_CYRILLIC = re.compile("[\u0400-\u04ff]")
_KANA_OR_HANGUL = re.compile("[\u3040-\u30ff\uac00-\ud7af]")
_UMLAUTS = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue"})
_WRITTEN_OUT = re.compile("(?<![aeoq])(?:ae|oe|ue)")
_LEAST_STEM = 4
_LEAST_STEMS = {"russian": 3}


def languages_of(words: Collection[str]) -> tuple[str, ...]:
    """Return the languages that words in small letters may be in; empty for English, and those without stems."""
    has_only_ambiguous = len(_AMBIGUOUS.intersection(words)) >= _MANY_AMBIGUOUS and STOP_WORDS.isdisjoint(words)
    if _TELLING.isdisjoint(words) and all(map(str.isascii, words)) and not has_only_ambiguous:
        return ()
    if any(map(_CYRILLIC.search, words)):
        return ("russian",)
    plain = set(map(without_accents, words))
    letters = set().union(*words)
    scores = {language: len(plain & STOP_WORDS_OF[language]) + len(letters & _LETTERS[language]) for language in LATIN}
    best = max(scores.values())
    if best <= len(plain & STOP_WORDS):
        return ()
    return tuple(language for language, score in scores.items() if score == best)


def other_forms(word: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return further search terms for a word; one that ends with ``*`` is a prefix."""
    if not word.isalpha():
        return ()
    spellings = [word]
    # ``schlüssel`` as ``schluessel``, and back; the index has no accents
    if "german" in languages:
        other = word.translate(_UMLAUTS)
        if other == word:
            other = _WRITTEN_OUT.sub(lambda match: match[0][0], word)
        if other != word:
            spellings.append(other)
    stems: dict[str, None] = {}
    for spelling in spellings:
        for language in languages:
            stem = _stemmer(language).stemWord(spelling)
            if len(stem) >= _LEAST_STEMS.get(language, _LEAST_STEM):
                stems[f"{stem}*"] = None
    return (*spellings[1:], *stems)


@cache
def _stemmer(language: str) -> Any:
    import Stemmer  # only questions in other languages need it

    return Stemmer.Stemmer(language)


def chinese_forms(question: str) -> dict[str, tuple[str, ...]]:
    """Map the pairs of characters of a Chinese question to the pairs in the other script, where they differ."""
    if _KANA_OR_HANGUL.search(question):
        return {}
    forms: dict[str, dict[str, None]] = {}
    for run in UNSPACED.findall(question):
        for script in ("t2s", "s2t"):
            converted = _converter(script).convert(run)
            if len(converted) != len(run):
                continue
            for pair, variant in zip(pairs(run) or [run], pairs(converted) or [converted], strict=True):
                if pair != variant:
                    forms.setdefault(pair, {})[variant] = None
    return {pair: tuple(variants) for pair, variants in forms.items()}


@cache
def _converter(name: str) -> Any:
    import opencc  # takes 60 ms to load, so only for Chinese

    return opencc.OpenCC(name)


def without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(filterfalse(unicodedata.combining, unicodedata.normalize("NFD", word)))
