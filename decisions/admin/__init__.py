"""The admin's pages of decisions."""

from decisions.admin import amendment
from decisions.admin.decision import DecisionAdmin
