"""What ``clients.toml`` declares of a client's hook, found in its text, and the effects that a hook can have.

Standard library only, and no import: parsing TOML takes longer than a hook may.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing takes time
if TYPE_CHECKING:
    from typing import ClassVar

CLIENTS_FILE = __file__.rpartition("/")[0] + "/clients.toml"
# What an event is answered with: the context of a session's start, what is recalled for a prompt, a note before an
# action, or a question to the agent, which goes on instead of ending its turn.
PACK, RECALL, NOTE, ASK = "pack", "recall", "note", "ask"
# What a client shows to the user, not to its model, and the event for which it does
STATUS = "status"
STATUS_LINE = "StatusLine"


class HookEffect:
    """The effect of a hook event on the session and its turn. What it implies is declared here alone."""

    __slots__ = ("answer", "is_recorded", "is_tool", "name", "reads_transcript", "stays_in_session")

    START: ClassVar[HookEffect]
    PROMPT: ClassVar[HookEffect]
    ACTION: ClassVar[HookEffect]
    TOOL: ClassVar[HookEffect]
    APPEND: ClassVar[HookEffect]
    STOP: ClassVar[HookEffect]
    END: ClassVar[HookEffect]
    STATUS: ClassVar[HookEffect]
    NOTHING: ClassVar[HookEffect]

    def __init__(
        self,
        name: str,
        *,
        answer: str = "",
        is_tool: bool = False,
        reads_transcript: bool = False,
        stays_in_session: bool = True,
        is_recorded: bool = True,
    ) -> None:
        # As clients.toml writes it.
        self.name = name
        # What the client shows to its model: PACK, RECALL, NOTE, ASK, or ""; STATUS is for the user.
        self.answer = answer
        # A tool is used: what a sub-agent does counts too. Once it was used, the client does not wait for the hub.
        self.is_tool = is_tool
        # The client's transcript may have what the event lacks.
        self.reads_transcript = reads_transcript
        # The client's window goes on in this session.
        self.stays_in_session = stays_in_session
        self.is_recorded = is_recorded

    @property
    def is_handled(self) -> bool:
        """Whether the hub gets the event, to record or to answer it."""
        return self.is_recorded or bool(self.answer)


# The session starts or continues.
HookEffect.START = HookEffect("start", answer=PACK)
# The open turn ends, and the next begins.
HookEffect.PROMPT = HookEffect("prompt", answer=RECALL)
# A tool is about to be used. Nothing is recorded; without a running hub there is no answer.
HookEffect.ACTION = HookEffect("action", answer=NOTE, is_tool=True, stays_in_session=False, is_recorded=False)
HookEffect.TOOL = HookEffect("tool", is_tool=True)
# Another event is added to the turn.
HookEffect.APPEND = HookEffect("append")
# The turn ends.
HookEffect.STOP = HookEffect("stop", answer=ASK, reads_transcript=True)
# The session ends.
HookEffect.END = HookEffect("end", stays_in_session=False)
# The client shows its status line. Nothing is recorded; without a running hub there is none.
HookEffect.STATUS = HookEffect("status", answer=STATUS, stays_in_session=False, is_recorded=False)
# A known hook that is not recorded.
HookEffect.NOTHING = HookEffect("nothing", stays_in_session=False, is_recorded=False)

_IN_TURNS = (HookEffect.PROMPT, HookEffect.ACTION, HookEffect.TOOL, HookEffect.APPEND, HookEffect.STOP)
_OUTSIDE = (HookEffect.START, HookEffect.END, HookEffect.STATUS, HookEffect.NOTHING)
EFFECTS = {effect.name: effect for effect in (*_IN_TURNS, *_OUTSIDE)}


class HookTable:
    """The hooks of a client, as the text of ``clients.toml`` declares them; an unknown client declares nothing."""

    def __init__(self, client: str) -> None:
        self._client = client
        try:
            with open(CLIENTS_FILE, "rb") as file:  # noqa: PTH123  (importing pathlib takes longer than this)
                self._text = file.read().decode()
        except OSError:
            self._text = ""

    def value(self, name: str, default: str = "") -> str:
        """Return a text of the client's hooks, such as the path of the session in its events."""
        table = self._text.partition(f"\n[{self._client}.hooks]\n")[2].partition("\n[")[0]
        return f"\n{table}".partition(f'\n{name} = "')[2].partition('"')[0] or default

    def event(self, name: str) -> tuple[HookEffect, bool]:
        """Return an event's effect, and whether the client adds the answer to its model's context."""
        key = f'"{name}"' if "." in name else name
        table = self._text.partition(f'[{self._client}.hooks.events.{key}]\neffect = "')[2].partition("\n[")[0]
        effect = EFFECTS.get(table.partition('"')[0], HookEffect.NOTHING)
        return effect, bool(effect.answer) and "\ntakes_context = false" not in table
