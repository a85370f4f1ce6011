"""The rules that say what a secret looks like, as data, and the engine that applies them.

Rules of the first set know a secret by itself: a known prefix or an unmistakable structure. Those
of the second judge a value by the name it is given, and look only at what the first has left.
"""

from __future__ import annotations

from .assignments import ASSIGNMENT_RULES
from .engine import Detector, Hit
from .rule import Rule
from .structures import STRUCTURE_RULES
from .tokens import TOKEN_RULES

RULES: tuple[Rule, ...] = (*STRUCTURE_RULES, *TOKEN_RULES, *ASSIGNMENT_RULES)
DETECTORS: tuple[Detector, ...] = (
    Detector((*STRUCTURE_RULES, *TOKEN_RULES)),
    Detector(ASSIGNMENT_RULES),
)

__all__ = ["DETECTORS", "RULES", "Detector", "Hit", "Rule"]
