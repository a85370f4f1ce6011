"""Predefined tags. Free ones come into being by use, and can be described with ``tag_create``."""

from __future__ import annotations

from collections.abc import Mapping

CATEGORIES: Mapping[str, tuple[str, ...]] = {
    "language": ("python", "typescript", "javascript", "rust", "go", "java", "sql", "bash", "markdown"),
    "domain": ("web", "cli", "api", "database", "ml", "devops", "security", "testing", "documentation"),
    "category": ("code_style", "architecture", "behavior", "performance", "error_handling", "logging"),
    "meta": ("deprecated", "experimental", "stable", "required", "optional"),
}

# Category by tag
PREDEFINED: Mapping[str, str] = {name: category for category, names in CATEGORIES.items() for name in names}

# Category of tags without one
FREE = "custom"
