"""Other forms of the words of a question, in languages other than English (decision 51).

The index has each word as it was written. A question in another language is also asked with the stems of its words as
prefixes, with umlauts in both spellings, and in both Chinese scripts. An English question gets none of this.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence, Set
from functools import cache
from typing import Any

from memories.search.shaping import UNSPACED, pairs

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
# Of these, words that English questions, names or code contain: they alone do not make a question foreign
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
_LEAST_CYRILLIC_STEM = 3


def languages_of(words: Collection[str], english: Set[str]) -> tuple[str, ...]:
    """Return the languages that a question may be in; empty for English, and for languages without stems.

    Args:
        words: of the question, in small letters.
        english: the stop words of English.
    """
    if _TELLING.isdisjoint(words) and all(map(str.isascii, words)) and not _has_only_ambiguous(words, english):
        return ()
    if any(_CYRILLIC.search(word) for word in words):
        return ("russian",)
    plain, letters = {without_accents(word) for word in words}, set().union(*words)
    scores = {language: len(plain & STOP_WORDS_OF[language]) + len(letters & _LETTERS[language]) for language in LATIN}
    best = max(scores.values())
    if best <= len(plain & english):
        return ()
    return tuple(language for language, score in scores.items() if score == best)


def _has_only_ambiguous(words: Collection[str], english: Set[str]) -> bool:
    return len(_AMBIGUOUS.intersection(words)) >= _MANY_AMBIGUOUS and english.isdisjoint(words)


def other_forms(word: str, languages: Sequence[str]) -> tuple[str, ...]:
    """Return further search terms for a word; one that ends with ``*`` is a prefix."""
    if not word.isalpha():
        return ()
    spellings = [word, *(_spellings(word) if "german" in languages else ())]
    stems = {f"{stem}*": None for spelling in spellings for stem in _stems(spelling, languages)}
    return (*spellings[1:], *stems)


# ``schlüssel`` as ``schluessel``, and back; the index has no accents
def _spellings(word: str) -> Iterator[str]:
    if (written_out := word.translate(_UMLAUTS)) != word:
        yield written_out
    elif (short := _WRITTEN_OUT.sub(lambda match: match[0][0], word)) != word:
        yield short


def _stems(word: str, languages: Sequence[str]) -> Iterator[str]:
    for language in languages:
        stem = _stemmer(language).stemWord(word)
        if len(stem) >= (_LEAST_CYRILLIC_STEM if language == "russian" else _LEAST_STEM):
            yield stem


@cache
def _stemmer(language: str) -> Any:
    import Stemmer  # only questions in other languages need it

    return Stemmer.Stemmer(language)


def chinese_forms(question: str) -> dict[str, tuple[str, ...]]:
    """Map the pairs of characters of a Chinese question to the pairs in the other script, where they differ."""
    if _KANA_OR_HANGUL.search(question):
        return {}
    found: dict[str, dict[str, None]] = {}
    for run in UNSPACED.findall(question):
        for other in (_converter(to).convert(run) for to in ("t2s", "s2t")):
            if len(other) == len(run):
                for pair, variant in zip(pairs(run) or [run], pairs(other) or [other], strict=True):
                    if pair != variant:
                        found.setdefault(pair, {})[variant] = None
    return {pair: tuple(variants) for pair, variants in found.items()}


@cache
def _converter(name: str) -> Any:
    import opencc  # takes 60 ms to load, so only for Chinese

    return opencc.OpenCC(name)


def without_accents(word: str) -> str:
    if word.isascii():
        return word
    return "".join(
        character for character in unicodedata.normalize("NFD", word) if not unicodedata.combining(character)
    )
