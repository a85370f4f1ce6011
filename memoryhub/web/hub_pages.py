"""What the hub's own pages share: who may see them, how they answer a form, and a text that is shown once."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django import forms
from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.cache import never_cache
from pydantic import ValidationError

from memoryhub.core.errors import HubError
from memoryhub.core.origin import use_origin
from memoryhub.core.permissions import Act, grant_of, require, use_grant
from memoryhub.core.schemas import Command
from memoryhub.core.validation import explain_faults

View = Callable[..., HttpResponse]
C = TypeVar("C", bound=Command)


def hub_page(act: Act, *, to: str = "") -> Callable[[View], View]:
    """Return a decorator for a page of the hub: for who may do ``act``; who is signed out is told how to sign in.

    Args:
        act: what is needed.
        to: what the page is for, where that is less than all that the act allows.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def asked(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
            if not request.user.is_authenticated:
                return redirect(settings.LOGIN_URL)
            require(request.user, act, to=to)
            origin = use_origin(source="admin", actor=request.user.get_username())
            with use_grant(grant_of(request.user)), origin:
                return view(request, *args, **kwargs)

        return never_cache(asked)

    return decorate


class CommandForm(forms.Form):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{"label_suffix": "", **kwargs})

    def values(self) -> dict[str, Any]:
        return dict(self.cleaned_data)

    def command(self, schema: type[C]) -> C | None:
        """Return the command, or None where the form says what is wrong."""
        if not self.is_valid():
            return None
        try:
            return schema.model_validate(self.values())
        except ValidationError as error:
            for fault in error.errors(include_url=False):
                name = str(fault["loc"][0]) if fault["loc"] else ""
                self.add_error(name if name in self.fields else None, sentence(explain_faults([fault])))
            return None


def apply_change(request: HttpRequest, change: Callable[[], object], said: str) -> None:
    """Make a change, and keep for the next page what came of it."""
    try:
        change()
    except HubError as error:
        messages.error(request, sentence(error.message))
    else:
        messages.success(request, said)


def sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
