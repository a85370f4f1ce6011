"""Prompts that correct the agent, in the languages that search knows, and Chinese and Japanese."""

from __future__ import annotations

import re

# How a prompt begins that corrects the agent
_BEGINNING = re.compile(
    r"""\W*(?:(?:uh+|hm+|hmm+|ok|okay|so|dude|wait|yes|well|but|and)\b[\s,.…!-]*)*(?:
      (?:no|nope|nah|nein|nee|non|pas\ ça|não|нет|неверно|不对|不對|不是|不要|いや|違う|違います)
      (?:\s*[,.;:!–—，。、-]|\ on\b)
    | (?:that|this|it)(?:['’]s|\ is|\ was)\ (?:wrong|incorrect|not\ (?:right|correct|true|what))\b
    | not\ (?:what\ i\b|true\b|like\ that\b) | wrong\b | undo\ (?:that|this|it)\b
    | i\ (?:just\ )?(?:said|meant|told\ you|asked\ (?:you|for)|already\ (?:said|told))\b
    | you(?:['’]re|\ are)\ (?:wrong|still|missing|just\ repeating)\b
    | you\ (?:misunderstood|forgot|ignored|were\ supposed)\b
    | das\ (?:ist|war|stimmt)\ (?:falsch|nicht|so\ nicht)\b | falsch\b | nicht\ (?:so|das|richtig)\b
    | ich\ (?:sagte|meinte|hatte\ gesagt|habe\ (?:doch\ |schon\ )?gesagt)\b
    | c['’]est\ (?:faux|pas)\b | ce\ n['’]est\ pas\b | faux\b | j['’]ai\ dit\b | je\ voulais\ dire\b
    | (?:eso|esto)\ (?:no\ es|está\ mal)\b | está\ mal\b | te\ dije\b | quise\ decir\b
    | (?:è|questo\ è)\ sbagliato\b | sbagliato\b | ho\ detto\b | intendevo\b | non\ (?:così|questo|è)\b
    | (?:isso|isto)\ (?:está\ errado|não\ é)\b | está\ errado\b | eu\ (?:disse|quis\ dizer)\b
    | это\ (?:не\ так|неправильно|неверно)\b | неправильно\b | я\ (?:же\ )?(?:сказал|имел\ в\ виду|говорил)
    | 错了 | 錯了 | 我说的是 | 我說的是 | 应该用 | 應該用 | それは違 | そうじゃな | 間違
    )""",
    re.IGNORECASE | re.VERBOSE,
)
# What corrects the agent wherever it stands in a prompt, in lower case: several times as fast as to ignore case
_CORRECTING = re.compile(
    r"""\b(?:
      i\ (?:mean|meant|said|told\ you)\b | i\ thought\ (?:we|you|our|i)\b | we\ (?:decided|agreed)\b
    | we\ explicitly\b | (?:we|i)\ (?:don['’]t|do\ not)\ (?:want|like)\b | we\ are(?:n['’]t|\ not)\b
    | (?:how|why)\b[^.?!]{0,60}\b(?:still|drop|dropped|back\ to|again)\b
    | not\ (?:our|your|the|a)\ \w+\b(?=[.!]?$|[.!]) | you(?:['’]re|\ are)\ (?:still\ )?(?:missing|wrong|repeating)\b
    | shouldn['’]t\ (?:be|have)\b
    | i(?:['’]ll|\ will)\ (?:just\ )?(?:run|do|test|start|handle|deploy|commit)\b[^.]{0,50}\b(?:myself|and\ test)\b
    | is\ (?:wrong|incorrect|not\ correct|not\ right)\b | remember\ (?:this|that|we|to|the)\b
    | there\ should\ be\ (?:just|only)\b | use\ [\w./@-]+\ instead\b
    | (?:use|with|update)\b[^\n]{0,160}\binstead\ of\b | it\ should\ (?:be|use|go|have)\b
    | nimm\b[^.\n]{0,60}\bstatt\b | verwende\b[^.\n]{0,60}\bstatt\b | benutze?\b[^.\n]{0,60}\bstatt\b
    | utilise[rz]?\b[^.\n]{0,60}\b(?:au\ lieu\ d|plutôt\ qu) | usa\b[^.\n]{0,60}\ben\ (?:vez|lugar)\ de\b
    | usa\b[^.\n]{0,60}\binvece\ d | (?:use|usa)\b[^.\n]{0,60}\bem\ vez\ d )
    | (?:^|[.!?,]\s+)(?:please\ )?stop\ \w+ing\b
    | вместо | 而不是 | 不要用 | ではなく | じゃなくて""",
    re.VERBOSE,
)
_IN_CAPITALS = re.compile(r"\b(?:NOT|AREN['’]T|ISN['’]T|DON['’]T)\b")
# What corrects the agent if it was interrupted before
_WHEN_INTERRUPTED = re.compile(
    r"\b(?:just|only|myself|instead|don['’]t|do not|not|rather|why|remember|never|always|there's)\b", re.IGNORECASE
)
# Agreement, which begins like a correction
_AGREEMENT = re.compile(
    r"""\W*(?:that['’]?s\ (?:ok|fine|good|right)\b
    | (?:no|non|nein|nope)[,.!]?\s+(?:(?:it|that)['’]?s\ (?:fine|ok|good)|problem|worries|need\b|thanks
    |i\ still\ (?:get|see)|just\ (?:go|proceed|continue)))""",
    re.IGNORECASE | re.VERBOSE,
)
# A prompt that a program wrote, or that is mostly pasted: the words are not the person's
_NOT_WRITTEN = re.compile(
    r"\s*(?:<|\[|#|```|\$ |> |➜|Error\b|Traceback\b|\{|implement the following plan|this session is being continued"
    r"|import |https?://)",
    re.IGNORECASE,
)
_CODE = re.compile(r"```.*?(?:```|\Z)|^[^\S\n]*>[^\n]*", re.DOTALL | re.MULTILINE)
_HEAD = 700
_SHORT = 400
_LEAST_WORDS = 3


def is_correction(prompt: str) -> bool:
    """Return whether a prompt begins as one that corrects the agent."""
    return bool(_BEGINNING.match(prompt)) and not _AGREEMENT.match(prompt)


def correction_of(prompt: str, *, is_interrupted: bool = False) -> str:
    """Return what a person corrects in a prompt, in their words; "" if it corrects nothing.

    Args:
        prompt: the text of the prompt.
        is_interrupted: the turn before has no answer, as when the person stopped the agent.
    """
    text = _CODE.sub(" ", prompt).strip()
    is_bare = text.isascii() and len(text.split()) < _LEAST_WORDS  # "not true" teaches nothing
    if _NOT_WRITTEN.match(text) or _AGREEMENT.match(text) or is_bare or not text:
        return ""
    head = text[:_HEAD]
    after_stop = is_interrupted and len(text) <= _SHORT and _WHEN_INTERRUPTED.search(text)
    corrects = _CORRECTING.search(head.lower()) or _IN_CAPITALS.search(head)
    if _BEGINNING.match(head) or corrects or after_stop:
        return text
    return ""
