"""Tokens that say by a known prefix what they are; found bare, in prose as in code."""

from __future__ import annotations

import re

from .plausible import is_masked
from .rule import Refine, Rule, Span, rule


def unmasked(match: re.Match[str]) -> Span | None:
    """Accept a token unless it is masked, as in ``ghp_xxxxxxxx``."""
    span = match.span(match.lastgroup or 0)
    return None if is_masked(match.string[slice(*span)]) else span


def mixed_tail(match: re.Match[str]) -> Span | None:
    """Accept a token that also has a digit: for prefixes that begin plain words too."""
    span = unmasked(match)
    return span if span and any(c.isdigit() for c in match[0]) else None


def token(name: str, pattern: str, *keywords: str, type: str = "", refine: Refine = unmasked) -> Rule:  # noqa: A002
    """Return a rule for a prefixed token.

    A prefix that ends in a mark of its own may not follow that mark, so that a text made of
    prefixes alone is not read again from each of them.
    """
    marks = "".join({keyword[-1] for keyword in keywords} & {"-", "."})
    return rule(name, pattern, *keywords, type=type, refine=refine, not_after=marks)


def mixed(name: str, pattern: str, *keywords: str, type: str = "") -> Rule:  # noqa: A002
    """Return a rule for a prefixed token that must hold a digit."""
    return token(name, pattern, *keywords, type=type, refine=mixed_tail)


CODE_HOSTS = (
    token(
        "github-token",
        r"gh[pousr]_[A-Za-z0-9]{30,255}|ghs_\d{1,12}_[\w.-]{60,900}",
        "ghp_",
        "gho_",
        "ghu_",
        "ghs_",
        "ghr_",
    ),
    token("github-fine-grained-token", r"github_pat_\w{22,255}", "github_pat_", type="github-token"),
    token(
        "gitlab-token",
        r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|soat|oas|ffct|trt|wt)-[\w.-]{18,300}",
        "glpat-",
        "gldt-",
        "glrt-",
        "glcbt-",
        "glptt-",
        "glft-",
        "glimt-",
        "glagent-",
        "glsoat-",
        "gloas-",
        "glffct-",
        "gltrt-",
        "glwt-",
    ),
    mixed("gitlab-runner-registration", r"GR1348941[\w-]{20,50}", "GR1348941", type="gitlab-token"),
    mixed(
        "bitbucket-token",
        r"AT(?:BB|CTT3xFf|ATT3xFf)[\w=.-]{20,400}",
        "ATBB",
        "ATCTT3xFf",
        "ATATT3xFf",
        type="atlassian-token",
    ),
)

CLOUDS = (
    token(
        "aws-access-key-id", r"(?:AKIA|ASIA|ABIA|ACCA|A3T[A-Z0-9])[A-Z0-9]{16}", "AKIA", "ASIA", "ABIA", "ACCA", "A3T"
    ),
    mixed("aws-bedrock-key", r"ABSK[A-Za-z0-9+/]{60,400}={0,2}", "ABSK", type="aws-bedrock-key"),
    token("google-api-key", r"AIza[\w-]{30,45}", "AIza"),
    token("google-oauth-secret", r"GOCSPX-[\w-]{20,45}", "GOCSPX-"),
    mixed("google-oauth-token", r"ya29\.[\w-]{20,400}", "ya29."),
    token("digitalocean-token", r"do[opr]_v1_[a-f0-9]{60,70}", "dop_v1_", "doo_v1_", "dor_v1_"),
    mixed("alibaba-access-key-id", r"LTAI[A-Za-z0-9]{17,24}", "LTAI"),
    token("hashicorp-vault-token", r"hv[sbr]\.[\w-]{20,300}", "hvs.", "hvb.", "hvr."),
    mixed("terraform-token", r"atlasv1\.[\w=-]{50,80}", "atlasv1."),
    mixed("flyio-token", r"(?:fo1_[\w-]{40,48}|fm[12][ar]?_[A-Za-z0-9+/]{60,2000}={0,3})", "fo1_", "fm1", "fm2_"),
    mixed("heroku-token", r"HRKU-[\w-]{30,80}", "HRKU-"),
    mixed("vercel-token", r"vc[piark]_[\w-]{24,80}", "vcp_", "vci_", "vca_", "vcr_", "vck_"),
)

MODELS = (
    mixed("anthropic-key", r"sk-ant-[\w-]{20,160}", "sk-ant-"),
    mixed("openai-key", r"sk-(?:(?:proj|svcacct|admin|service|None|or-v1)-[\w-]{20,300}|[A-Za-z0-9]{20,80})", "sk-"),
    token("huggingface-token", r"(?:hf_|api_org_)[A-Za-z]{30,60}", "hf_", "api_org_"),
    mixed("huggingface-new-token", r"hf_[A-Za-z0-9]{30,60}", "hf_", type="huggingface-token"),
    token("groq-key", r"gsk_[A-Za-z0-9]{40,60}", "gsk_"),
    mixed("replicate-token", r"r8_[A-Za-z0-9]{30,45}", "r8_"),
    mixed("perplexity-key", r"pplx-[A-Za-z0-9]{40,60}", "pplx-"),
    mixed("xai-key", r"xai-[\w-]{60,100}", "xai-"),
    mixed("langsmith-key", r"lsv2_(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}", "lsv2_"),
)

MESSAGING = (
    mixed(
        "slack-token",
        r"xox[a-z](?:\.xox[a-z])?-[\w-]{8,400}",
        "xoxa-",
        "xoxb-",
        "xoxc-",
        "xoxd-",
        "xoxe-",
        "xoxe.",
        "xoxo-",
        "xoxp-",
        "xoxr-",
        "xoxs-",
    ),
    mixed("slack-app-token", r"xapp-\d-[\w-]{12,200}", "xapp-", type="slack-token"),
    token(
        "slack-webhook",
        r"hooks\.slack(?:-gov)?\.com/(?:services|workflows|triggers)/(?P<secret>[\w/+-]{20,120})",
        "hooks.slack",
    ),
    token(
        "discord-webhook",
        r"discord(?:app)?\.com/api/webhooks/\d{15,22}/(?P<secret>[\w-]{50,90})",
        "discord.com/api/",
        "discordapp.com/api/",
    ),
    mixed("teams-webhook", r"webhook\.office\.com/webhookb2/(?P<secret>[\w@/-]{60,250})", "webhook.office.com"),
    mixed("sendgrid-key", r"SG\.[\w=.-]{50,75}", "SG."),
    mixed("mailgun-key", r"(?:key|pubkey)-[a-f0-9]{32}", "key-"),
    mixed("brevo-key", r"xkeysib-[a-f0-9]{60,70}-\w{12,20}", "xkeysib-"),
)

SERVICES = (
    token(
        "stripe-key",
        r"(?:sk|rk)_(?:live|test|prod)_[A-Za-z0-9]{10,250}",
        "sk_live_",
        "rk_live_",
        "sk_test_",
        "rk_test_",
        "sk_prod_",
        "rk_prod_",
    ),
    mixed("stripe-webhook-secret", r"whsec_[A-Za-z0-9+/=]{24,80}", "whsec_"),
    mixed("square-token", r"(?:sq0(?:atp|csp)-[\w-]{20,60}|EAAA[\w-]{56,64})", "sq0atp-", "sq0csp-", "EAAA"),
    mixed("shopify-token", r"shp(?:at|ca|pa|ss)_[A-Za-z0-9]{30,50}", "shpat_", "shpca_", "shppa_", "shpss_"),
    token("npm-token", r"npm_[A-Za-z0-9]{30,50}", "npm_"),
    mixed("pypi-token", r"pypi-[\w-]{40,1000}", "pypi-"),
    mixed("rubygems-token", r"rubygems_[a-f0-9]{48}", "rubygems_"),
    mixed("crates-token", r"cio[A-Za-z0-9]{32}", "cio"),
    token("docker-token", r"dckr_(?:pat|oat)_[\w-]{20,60}", "dckr_"),
    mixed("linear-key", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,64}", "lin_"),
    mixed("notion-token", r"(?:ntn_[A-Za-z0-9]{40,60}|secret_[A-Za-z0-9]{43})", "ntn_", "secret_"),
    token("figma-token", r"fig[dour]r?h?_[\w-]{38,60}", "figd_", "figo", "figu_", "figur_"),
    mixed("postman-key", r"PMAK-[a-f0-9]{24}-[a-f0-9]{34}", "PMAK-"),
    mixed("newrelic-key", r"NR(?:AK|JS|II|RA|IQ|AA|SP|MA)-[\w-]{18,60}", "NRAK-", "NRJS-", "NRII-", "NRIQ-"),
    mixed("grafana-token", r"gl(?:c|sa)_[\w+/=]{30,400}", "glc_", "glsa_"),
    mixed("sentry-token", r"sntry[su]_[\w+/=-]{40,400}", "sntrys_", "sntryu_"),
    mixed("databricks-token", r"dapi[a-fA-F0-9]{32}(?:-\d)?", "dapi"),
    token("doppler-token", r"dp\.(?:pt|st|ct|sa|scim|audit)\.[\w.-]{30,80}", "dp."),
    mixed("planetscale-token", r"pscale_(?:tkn|oauth|pw)_[\w.=-]{20,80}", "pscale_"),
    mixed("supabase-key", r"sb[pa]?_(?:secret_)?[\w-]{30,60}", "sbp_", "sb_secret_"),
    mixed("1password-token", r"(?:ops_eyJ[\w+/=-]{100,900}|A3-[A-Z0-9-]{30,40})", "ops_eyJ", "A3-"),
    token("tailscale-key", r"tskey-[a-z]{2,12}-[\w-]{16,80}", "tskey-"),
    mixed("easypost-key", r"EZ[AT]K[A-Za-z0-9]{54}", "EZAK", "EZTK"),
    mixed("openshift-token", r"sha256~[\w-]{40,50}", "sha256~"),
    mixed("posthog-key", r"ph[xs]_[\w-]{40,60}", "phx_", "phs_"),
    mixed("clojars-token", r"CLOJARS_[a-f0-9]{60}", "CLOJARS_"),
    mixed("cloudflare-token", r"cf(?:at|ut|k)_[A-Za-z0-9]{40,60}", "cfat_", "cfut_", "cfk_"),
    mixed("sourcegraph-token", r"sgp_[A-Za-z0-9_]{40,80}", "sgp_"),
    token("age-secret-key", r"AGE-SECRET-KEY-1[A-Z0-9]{40,70}", "AGE-SECRET-KEY-"),
    mixed("dynatrace-token", r"dt0c01\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{64}", "dt0c01."),
    mixed("facebook-token", r"EAA[MC][A-Za-z0-9]{90,400}", "EAAM", "EAAC"),
    mixed("artifactory-token", r"(?:AKCp[A-Za-z0-9]{60,80}|cmVmd[A-Za-z0-9]{55,70})", "AKCp", "cmVmd"),
)

TOKEN_RULES: tuple[Rule, ...] = (*CODE_HOSTS, *CLOUDS, *MODELS, *MESSAGING, *SERVICES)
