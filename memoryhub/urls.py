"""URLs of the hub; those of one store are in ``store_urls``."""

from __future__ import annotations

from functools import partial

from django.urls import path

from memoryhub.rest.api import api
from memoryhub.rest.problems import not_found_in_a_line
from memoryhub.rest.reference import show_schema
from memoryhub.web import describe_pages, help_page, jobs_page, live, navigation, overviews, people_pages, signin

urlpatterns = [
    path(".well-known/<path:name>", not_found_in_a_line),
    path("", overviews.show_projects, name="home"),
    path("find", navigation.show_palette, name="find"),
    path("sample", overviews.load_sample, name="load-sample"),
    path("first-steps/<str:project>/hide", overviews.hide_first_steps, name="hide-first-steps"),
    path("new/project", describe_pages.new_project, name="new-project"),
    path("new/organisation", describe_pages.new_org, name="new-org"),
    path("people", people_pages.show_people, name="people"),
    path("people/<str:name>/<str:what>", people_pages.change_person, name="change-person"),
    path("tokens", people_pages.show_tokens, name="tokens"),
    path("tokens/<path:name>/revoke", people_pages.revoke_token, name="revoke-token"),
    path("jobs", jobs_page.show_jobs, name="jobs"),
    path("jobs/run", jobs_page.run_now, name="run-job"),
    path("jobs/plan", jobs_page.plan_job, name="plan-job"),
    path("live/jobs", live.follow_jobs, name="live-jobs"),
    path("signin/<str:token>", signin.follow_link, name="signin"),
    path("help/<path:page>", help_page.show_help, name="help"),
    path("signout", signin.sign_out, name="signout"),
    path("admin/", overviews.find_admin, name="admin"),
    path("admin/login/", signin.explain, name="signin-help"),
    # Before the API's own view, which builds the schema for each request
    path("api/v1/openapi.json", partial(show_schema, api=api), name="openapi"),
    path("api/v1/", api.urls),
]
