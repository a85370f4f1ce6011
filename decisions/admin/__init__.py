"""The admin's pages of decisions."""

from decisions.admin.decision import DecisionAdmin
