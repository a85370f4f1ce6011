"""Words of decision records in English, German, French, Spanish, Chinese and Japanese, and the status that they say."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from decisions.models import DecisionStatus, EdgeRelation
from memoryhub.core.errors import Invalid


class RecordPart(StrEnum):
    STATUS = "status"
    DATE = "date"
    AUTHOR = "author"
    CONTEXT = "context"
    OPTIONS = "options"
    PROS = "pros"
    OUTCOME = "outcome"
    RATIONALE = "rationale"
    CONSEQUENCES = "consequences"
    LINKS = "links"
    OTHER = "other"


# Headings of sections and names of fields, as `normal_name` returns them
_PARTS = {
    RecordPart.STATUS: "status|statut|état|estado|状态|狀態|ステータス",
    RecordPart.DATE: "date|datum|fecha|日期|日付",
    RecordPart.AUTHOR: "deciders|decider|decision makers|decision maker|decisionmakers|author|authors|owner|owners"
    "|entscheider|entscheidungsträger|autor|autoren|verfasser|décideurs|auteur|auteurs|decisores|autores"
    "|决策者|決策者|作者|意思決定者|決定者|作成者",
    RecordPart.CONTEXT: "context|context and problem statement|problem|problem statement|background|issue|motivation"
    "|kontext|kontext und problemstellung|problemstellung|ausgangslage|hintergrund"
    "|contexte|contexte et énoncé du problème|contexte et problématique|énoncé du problème|problématique"
    "|contexto|contexto y planteamiento del problema|planteamiento del problema|problema|antecedentes"
    "|背景|上下文|上下文和问题陈述|背景和问题|背景与问题|背景与问题陈述|问题|问题陈述|問題"
    "|コンテキスト|コンテキストと問題|背景と問題|背景と課題|課題|文脈",
    RecordPart.OPTIONS: "considered options|options considered|alternatives considered|considered alternatives"
    "|alternatives"
    "|options|rejected alternatives|alternatives rejected|rejected options|other options"
    "|betrachtete optionen|optionen|alternativen|betrachtete alternativen|erwogene optionen|erwogene alternativen"
    "|verworfene alternativen|options envisagées|options considérées|alternatives envisagées|alternatives considérées"
    "|alternatives rejetées|opciones consideradas|opciones|alternativas|alternativas consideradas"
    "|候选方案|可选方案|备选方案|替代方案|考虑的方案|考虑的选项|选项|備選方案"
    "|検討した選択肢|検討された選択肢|選択肢|代替案|検討した代替案",
    RecordPart.PROS: "pros and cons of the options|pros and cons|vor und nachteile der optionen|vor und nachteile"
    "|avantages et inconvénients des options|avantages et inconvénients|pros y contras de las opciones"
    "|ventajas y desventajas de las opciones|ventajas y desventajas|优缺点|方案优缺点|选项的优缺点"
    "|選択肢の長所と短所|長所と短所|メリットとデメリット",
    RecordPart.OUTCOME: "decision|decisions|the decision|decision outcome|outcome|resolution|solution"
    "|entscheidung|entscheidungen|entscheidungsergebnis|beschluss|lösung"
    "|décision|décisions|résultat de la décision|solution retenue|decisión|decisiones|resultado de la decisión"
    "|resolución|solución|决策|决定|决策结果|决策内容|决议|決策|決定|決定事項|決定内容|決定結果|結論",
    RecordPart.RATIONALE: "rationale|justification|reasons|reasoning|argument|begründung|gründe|raisons"
    "|justificación|razones"
    "|理由|决策理由|依据|根拠|決定理由|採用理由",
    RecordPart.CONSEQUENCES: "consequences|positive consequences|negative consequences|implications|confirmation"
    "|validation"
    "|compliance|konsequenzen|positive konsequenzen|negative konsequenzen|folgen|auswirkungen"
    "|conséquences|conséquences positives|conséquences négatives|consecuencias|consecuencias positivas"
    "|consecuencias negativas|后果|影响|结果|正面影响|负面影响|影響|結果|帰結",
    RecordPart.LINKS: "links|related|more information|related decisions|related adrs|references|see also"
    "|weitere informationen|verwandte entscheidungen|referenzen|siehe auch|liens|plus d informations"
    "|informations complémentaires|décisions liées|références|voir aussi|enlaces|más información"
    "|decisiones relacionadas|referencias|ver también|链接|更多信息|相关决策|参考|参考资料|参见"
    "|リンク|関連する決定|参考資料|関連リンク|詳細情報",
}
PART_OF = {name: part for part, names in _PARTS.items() for name in names.split("|")}


def normal_name(heading: str) -> str:
    """Return a heading or a name of a field without numbers, marks, case and what is in parentheses."""
    text = unicodedata.normalize("NFC", heading).casefold()
    return " ".join(re.sub(r"\(.*?\)|（.*?）|[\W\d_]", " ", text).split())


STATUS_WORDS = {
    DecisionStatus.SUPERSEDED: "superseded superceded replaced obsoleted ersetzt abgelöst"
    " remplacé remplacée supplanté supplantée reemplazado reemplazada sustituido sustituida",
    DecisionStatus.DEPRECATED: "deprecated obsolete retired veraltet überholt obsolet obsolète déprécié"
    " dépréciée caduc"
    " caduque obsoleto obsoleta",
    DecisionStatus.REJECTED: "rejected declined withdrawn abandoned abgelehnt verworfen zurückgezogen rejeté rejetée"
    " refusé refusée abandonné abandonnée retiré retirée rechazado rechazada descartado descartada",
    DecisionStatus.PROPOSED: "proposed proposal draft pending wip rfc open review vorgeschlagen vorschlag"
    " entwurf offen"
    " proposé proposée proposition brouillon ébauche propuesto propuesta borrador pendiente",
    DecisionStatus.ACCEPTED: "accepted approved agreed decided done implemented active adopted final ratified valid"
    " akzeptiert angenommen beschlossen entschieden genehmigt umgesetzt gültig accepté acceptée approuvé approuvée"
    " adopté adoptée validé validée décidé décidée valide aceptado aceptada aprobado aprobada adoptado"
    " adoptada vigente",
}
# These languages have no spaces: the words are searched in the clause, the longest first
STATUS_PHRASES = {
    DecisionStatus.SUPERSEDED: "已取代 已被取代 被取代 已替代 被替代 已被替换 被替换"
    " 置き換え済み 置き換えられ 差し替え済み",
    DecisionStatus.DEPRECATED: "已废弃 废弃 已弃用 弃用 已废止 废止 已过时 过时 作废"
    " 已廢棄 廢棄 已棄用 棄用 廃止 非推奨",
    DecisionStatus.REJECTED: "已拒绝 拒绝 已否决 否决 驳回 已撤回 撤回 已拒絕 拒絕 却下 不採用 棄却 取り下げ",
    DecisionStatus.PROPOSED: "提议 提案 拟议 草案 草稿 待定 讨论中 评审中 待审核 提議 検討中 ドラフト レビュー中",
    DecisionStatus.ACCEPTED: "已接受 接受 已通过 通过 已采纳 采纳 已批准 批准 已决定 已确认 已生效 已实施"
    " 有效 有効 已採納 採納 承認 採択 採用 決定済み 受理 受け入れ",
}
# Subjects that mean the record itself, auxiliary verbs and adverbs: skipped before a status word
FILLERS = frozenset(
    "this the decision adr record it status has have had been is was are be currently now formally fully officially"
    " provisionally conditionally temporarily finally already completely entirely under in"
    " diese dieser die entscheidung wurde wird ist worden derzeit aktuell vorläufig vollständig bereits"
    " cette ce la le décision a été est actuellement provisoirement entièrement déjà"
    " esta este el decisión ha sido fue es está actualmente provisionalmente".split()
)
_SECTIONS = "section sections part parts paragraph item abschnitt kapitel teil partie sección parte apartado".split()
_SECTION_PHRASES = "部分|第.{1,4}[节節章条條項项]"
# A section of a record, not the whole
OF_SECTION = re.compile(rf"\b(?:{'|'.join(_SECTIONS)})\b|§|{_SECTION_PHRASES}")
PARTLY = frozenset(["partially", "partly", "teilweise", "partiellement", "parcialmente", *_SECTIONS])
PARTLY_PHRASES = re.compile(f"一部|{_SECTION_PHRASES}")
# What an accepted decision is instead, by the negation before the word; None if that is not known
_NEGATIONS: dict[str, DecisionStatus | None] = {
    **dict.fromkeys(("not yet", "noch nicht", "pas encore", "aún no", "todavía no"), DecisionStatus.PROPOSED),
    **dict.fromkeys(("no longer", "nicht mehr", "n'est plus", "n’est plus", "ya no"), DecisionStatus.DEPRECATED),
    **dict.fromkeys(("not", "never", "nicht", "nie", "pas", "jamais", "no", "nunca", "neither")),
}
_NEGATION_PHRASES: dict[str, DecisionStatus | None] = {
    **dict.fromkeys(("尚未", "还未", "還未", "まだ"), DecisionStatus.PROPOSED),
    "不再": DecisionStatus.DEPRECATED,
    **dict.fromkeys(("未", "没有", "沒有", "ない")),
}

_FORWARD = {
    EdgeRelation.SUPERSEDES: "supersedes|supercedes|replaces|obsoletes|ersetzt|annule et remplace|remplace"
    "|reemplaza(?: a)?|sustituye(?: a)?|取代|替代|替换",
    EdgeRelation.REFINES: "refines|amends|clarifies|extends|updates|ergänzt|präzisiert|erweitert|amende|précise"
    "|complète|étend|refina|amplía|extiende|修订|补充|扩展|细化",
    EdgeRelation.DEPENDS_ON: "depends on|requires|builds on|hängt ab von|basiert auf|dépend de|repose sur|depende de"
    "|se basa en|依赖|基于",
    EdgeRelation.CONFLICTS_WITH: "conflicts with|contradicts|widerspricht|contredit|contradice",
    EdgeRelation.RELATES_TO: "relates to|related to|related|see also|siehe auch|voir aussi|lié à|relacionado con"
    "|ver también|相关|参见|関連",
}
_BACKWARD = {
    EdgeRelation.SUPERSEDES: "superseded by|superceded by|replaced by|obsoleted by|ersetzt durch|abgelöst durch"
    "|abgelöst von|remplacée? par|supplantée? par|reemplazad[oa] por|sustituid[oa] por"
    "|[被由](?=[^。；\n]{0,300}?(?:取代|替代|替换))",
    EdgeRelation.REFINES: "refined by|amended by|clarified by|extended by|updated by|ergänzt durch|präzisiert durch"
    "|amendée? par|complétée? par|ampliad[oa] por",
    EdgeRelation.DEPENDS_ON: "required by",
}
# Relation and whether the other record is the subject, by the pattern of the phrase; the passive is tried first
RELATIONS: list[tuple[str, EdgeRelation, bool]] = []
for _is_backward, _patterns_of in ((True, _BACKWARD), (False, _FORWARD)):
    for _relation, _patterns in _patterns_of.items():
        RELATIONS += [(_pattern, _relation, _is_backward) for _pattern in _patterns.split("|")]
# Fields of the front matter, as `normal_name` returns them
_RELATION_FIELDS = {
    (
        EdgeRelation.SUPERSEDES,
        False,
    ): "supersedes|supercedes|replaces|obsoletes|ersetzt|remplace|reemplaza|sustituye|取代|替代",
    (EdgeRelation.SUPERSEDES, True): "superseded by|supersededby|superceded by|replaced by|replacedby|obsoleted by"
    "|ersetzt durch|remplacé par|reemplazado por|被取代|superseded",
    (EdgeRelation.REFINES, False): "refines|amends|extends|updates|clarifies",
    (EdgeRelation.REFINES, True): "refined by|amended by|amendedby|extended by|updated by|clarified by",
    (EdgeRelation.DEPENDS_ON, False): "depends on|dependson|requires|builds on|depends",
    (EdgeRelation.CONFLICTS_WITH, False): "conflicts with|conflicts|contradicts",
    (EdgeRelation.RELATES_TO, False): "related|related to|relates to|relates|related adrs|related decisions|see also"
    "|相关|関連",
}
RELATION_OF_FIELD = {name: relation for relation, names in _RELATION_FIELDS.items() for name in names.split("|")}
# In Japanese the other record comes before the verb: `ADR-3 により置き換え`
REPLACED_BY_PRECEDING = re.compile(r"\s*(?:に|により|によって|で)\s*(?:置き換え|差し替え|置換)")
REPLACES_PRECEDING = re.compile(r"\s*を\s*(?:置き換え|差し替え|置換)")

CHOSEN_OPTION = (
    "chosen option|selected option|gewählte option|option choisie|option retenue|opción elegida|opción escogida"
    "|选择的方案|选定方案|选择的选项|選択した選択肢|選択された選択肢|採用した選択肢"
)
BECAUSE = r"because\b|weil\b|da\b|car\b|parce que\b|porque\b|ya que\b|因为|なぜなら"
# Words for the option that was chosen, in parentheses after its name or instead of the reason against it
CHOSEN_WORDS = (
    "chosen|selected|this decision|this adr|gewählt|ausgewählt|choisie?|retenue?|elegid[oa]"
    "|escogid[oa]|选定|已选|选择|採用|選択"
)
CHOSEN_MARKS = f"proposed|recommended|{CHOSEN_WORDS}"
# Columns of a table of options
OPTION_COLUMNS = (
    "alternative|alternatives|option|options|approach|choice|candidate|alternativa|opción|方案|选项|選択肢|代替案"
)
REASON_COLUMNS = (
    "why not chosen|why not|why rejected|reason|reasons|rationale|reason for rejection|rejected because"
    "|rejection reason"
    "|verdict|result|why chosen rejected|why chosen or rejected|decision|outcome"
    "|warum nicht|grund|begründung|pourquoi pas|raison|por qué no|razón|未选原因|原因|理由|不採用の理由"
)


_STATUS_OF_WORD = {word: status for status, words in STATUS_WORDS.items() for word in words.split()}
_STATUS_OF_PHRASE = sorted(
    ((phrase, status) for status, phrases in STATUS_PHRASES.items() for phrase in phrases.split()),
    key=lambda item: -len(item[0]),
)
_RELATION = re.compile("|".join(pattern for pattern, _, _ in RELATIONS), re.IGNORECASE)
# A link or a record's number: what follows it speaks of that record
_RECORD = "\N{SECTION SIGN}"
_LINK = re.compile(r"!?\[[^\[\]]*\](?:\([^()]*\)|\[[^\[\]]*\])|\bADR[-_ ]?#?\d+", re.IGNORECASE)
_STRUCK_OR_ASIDE = re.compile(r"~~.*?~~|\([^()]*\)|（[^（）]*）", re.DOTALL)
_SENTENCE = re.compile(r"[.。;；!?！？](?=\s|\Z|[^\x00-\x7f])|\n+|->|=>|→")
_ARROW = re.compile("->|=>|→")
_WORD = re.compile(rf"[^\W\d_]+(?:['’][^\W\d_]+)?|{_RECORD}")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff]")
_UNSPACED_PASSIVE = re.compile(
    rf"[被由][^，。；\n]{{0,300}}(?:取代|替代|替换|替換)|{_RECORD}{REPLACED_BY_PRECEDING.pattern}"
)
_CLAUSE_BREAK = re.compile(r"[,，、]|\s[-–—]+\s")
_BY = re.compile(r"\b(?:by|durch|von|par|por)\b", re.IGNORECASE)
# Longer texts tell the history of a record
_MAX_LENGTH = 20_000
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class _Clause(NamedTuple):
    status: DecisionStatus
    date: str


def status_of(text: str) -> DecisionStatus:
    """Parse a status; one that is empty or only names other records is accepted.

    A status of another record or of a section is not the record's own. ``superseded`` outweighs the other words, which
    a record keeps from before; of several with a date the latest counts, after an arrow the last, else the first.

    Raises:
        Invalid: no status is recognised.
    """
    unlinked = _STRUCK_OR_ASIDE.sub(" ", _LINK.sub(f" {_RECORD} ", text[:_MAX_LENGTH]))
    plain = re.sub(r"[*`\"“”„«»]|(?<!\w)_|_(?!\w)", "", unlinked)
    if not plain.strip():
        return DecisionStatus.ACCEPTED
    sentences = list(filter(str.strip, _SENTENCE.split(plain))) if plain.count("|") < 2 else []
    clauses = list(_clauses(sentences))
    if any(clause.status is DecisionStatus.SUPERSEDED for clause in clauses):
        return DecisionStatus.SUPERSEDED
    if clauses and _ARROW.search(plain):
        return clauses[-1].status
    if clauses and all(clause.date for clause in clauses):
        return max(clauses, key=lambda clause: clause.date).status
    if clauses:
        return clauses[0].status
    if sentences and _RELATION.match(sentences[0].strip(" -*+\n")):
        return DecisionStatus.ACCEPTED
    raise Invalid(f"status {text.strip()[:60]!r} is unknown; use one of {', '.join(DecisionStatus)}")


def _clauses(sentences: Sequence[str]) -> Iterator[_Clause]:
    for number, sentence in enumerate(sentences):
        date = _DATE.search(sentence)
        for place, part in enumerate(_CLAUSE_BREAK.split(_without_label(sentence))):
            status = _status_of_clause(part)
            # Further ones say what became of it: `Accepted. Superseded by …`, not `Accepted, replaced the old one`
            if status is DecisionStatus.SUPERSEDED:
                is_alone = len(_WORD.findall(part)) == 1
                counts = number == place == 0 or is_alone or bool(_BY.search(part) or _UNSPACED.search(part))
            else:
                counts = place == 0
            if status and counts:
                yield _Clause(status, date[0] if date else "")


# `Status: accepted`, `2026-01-31: accepted`
def _without_label(sentence: str) -> str:
    undated = re.sub(rf"\A[^\w{_RECORD}]*(?:\d{{4}}-\d{{2}}-\d{{2}}\W+)?", "", sentence)
    label, _, value = undated.replace("：", ":").partition(":")
    return value if PART_OF.get(normal_name(label)) is RecordPart.STATUS else undated


# The clause begins with the status; before it are at most adverbs and words that mean the record itself.
def _status_of_clause(clause: str) -> DecisionStatus | None:
    if _UNSPACED.search(clause):
        return _status_of_unspaced(clause)
    words = [match[0].casefold() for match in _WORD.finditer(clause)]
    is_partial, negation = False, ""
    while words:
        is_partial = is_partial or words[0] in PARTLY
        if words[0] in _STATUS_OF_WORD:
            return _qualified(_STATUS_OF_WORD[words[0]], _NEGATIONS, negation, is_partial=is_partial)
        remaining = f"{' '.join(words)} "
        here = next((phrase for phrase in _NEGATIONS if remaining.startswith(f"{phrase} ")), "")
        if not here and words[0] not in FILLERS | PARTLY:
            return None
        negation = here or negation
        words = words[here.count(" ") + 1 :]
    return None


def _status_of_unspaced(clause: str) -> DecisionStatus | None:
    is_partial = bool(PARTLY_PHRASES.search(clause))
    if _UNSPACED_PASSIVE.search(clause):
        return _qualified(DecisionStatus.SUPERSEDED, {}, "", is_partial=is_partial)
    for phrase, status in _STATUS_OF_PHRASE:
        if phrase in clause:
            around = clause.replace(phrase, "", 1)
            negation = next((phrase for phrase in _NEGATION_PHRASES if phrase in around), "")
            return _qualified(status, _NEGATION_PHRASES, negation, is_partial=is_partial)
    return None


def _qualified(
    status: DecisionStatus, negations: dict[str, DecisionStatus | None], negation: str, *, is_partial: bool
) -> DecisionStatus | None:
    if negation:
        return negations[negation] if status is DecisionStatus.ACCEPTED else None
    if is_partial and status in (DecisionStatus.SUPERSEDED, DecisionStatus.DEPRECATED):
        return DecisionStatus.ACCEPTED
    return status
