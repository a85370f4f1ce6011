"""The hub's addresses; those of one store are in ``store_urls``."""

from __future__ import annotations

from django.urls import path

from memoryhub import home, making, signin
from memoryhub.api import api

urlpatterns = [
    path("", home.show_projects, name="home"),
    path("new/project", making.new_project, name="new-project"),
    path("new/organisation", making.new_org, name="new-org"),
    path("signin/<str:token>", signin.follow_link, name="signin"),
    path("signout", signin.sign_out, name="signout"),
    path("admin/login/", signin.explain, name="signin-help"),
    path("api/v1/", api.urls),
]
