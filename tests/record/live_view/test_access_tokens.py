"""Who may look and who may change: the token for reading, pages of other sites, and the log of what was changed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from kproxy.admin.api import OPERATIONS, description
from kproxy.admin.guard import AdminTokens, make_guard
from kproxy.admin.problem import Problem
from kproxy.app.config.document import AdminConfig, admin_from, config_from
from kproxy.app.main import tokens_of
from kproxy.rules.values.source import Source
from tests.admin import conftest as admin

api, logged, make_api = admin.api, admin.logged, admin.make_api  # fixtures

LOOK, CHANGE = {"authorization": "Bearer look"}, {"authorization": "Bearer s3cret"}
ASK = {"check_config", "check_document", "wait_for_rule", "preview_held"}
"""Operations that are no GET, and change nothing all the same."""


@pytest.mark.trio
async def test_a_token_for_reading_changes_nothing(make_api: Callable[..., Any]) -> None:
    """Whatever the operation, and before anything of the body is read."""
    made = make_api("rules: [{name: base, kind: tiny}]", token="s3cret", read="look")
    before = (await made("GET", "/api/rules", **LOOK)).json["version"]
    refused = {}
    for one in OPERATIONS:
        if one.method == "GET" or one.name in ASK:
            continue
        path = one.path.replace("{name}", "base").replace("{id}", "1")
        answer = await made(one.method, path, "never read", kind="text/plain", **LOOK)
        refused[one.name] = answer.status, answer.code

    assert len(refused) >= 15
    assert set(refused.values()) == {(403, "read_only")}, refused
    assert (await made("GET", "/api/rules", **LOOK)).json["version"] == before


@pytest.mark.trio
async def test_a_token_for_reading_sees_what_the_other_sees(make_api: Callable[..., Any]) -> None:
    """What is asked, and what is only asked about."""
    made = make_api("rules: [{name: base, kind: tiny}]", token="s3cret", read="look")
    for path in ("/api/rules", "/api/rules/base", "/api/version", "/api/filter?text=~k+fetch", "/api/openapi.json"):
        seen, whole = await made("GET", path, **LOOK), await made("GET", path, **CHANGE)
        assert (seen.status, seen.json.keys()) == (200, whole.json.keys())
    checked = await made("POST", "/api/check", "rules: []", kind="application/yaml", **LOOK)
    waited = await made("POST", "/api/rules/base/wait?timeout=0&hits=1", **LOOK)

    assert (checked.status, checked.json["mistakes"]) == (200, [])
    assert (waited.status, waited.json["reached"]) == (200, False)


@pytest.mark.trio
async def test_other_tokens_are_none(make_api: Callable[..., Any]) -> None:
    """A part of one, both of them, one in another form."""
    made = make_api(token="s3cret", read="look")
    for given in ("Bearer loo", "Bearer look ", "Bearer s3cretlook", "look", "Basic look", "Bearer ", "Bearer \u00fc"):
        refused = await made("GET", "/api/version", authorization=given)
        assert (refused.status, refused.code) == (401, "unauthorized"), given
    assert (await made("GET", "/api/version")).status == 401


@pytest.mark.parametrize("site", ["cross-site", "same-site", "", "SAME-ORIGIN", "same-origin, none"])
@pytest.mark.trio
async def test_pages_of_other_sites_are_refused(make_api: Callable[..., Any], site: str) -> None:
    """As the browser says it, with a token, too; another port of this machine is another page of the same site."""
    made = make_api(token="s3cret")
    for path in ("/api/rules", "/metrics", "/api/openapi.json"):
        refused = await made("GET", path, **CHANGE, **{"sec-fetch-site": site})
        assert (refused.status, refused.code) == (403, "foreign_site")
    assert (await made("POST", "/api/faults/disable", **CHANGE, **{"sec-fetch-site": site})).code == "foreign_site"
    assert (await made("GET", "/api/faults/disable", **CHANGE, **{"sec-fetch-site": site})).code == "foreign_site"
    assert (await made("GET", "/livez", **{"sec-fetch-site": site})).status == 200


@pytest.mark.parametrize("site", ["same-origin", "none"])
@pytest.mark.trio
async def test_the_own_page_and_people_are_let_in(api: Any, site: str) -> None:
    """`none`: somebody has typed the address."""
    assert (await api("GET", "/api/rules", **{"sec-fetch-site": site})).status == 200
    assert (await api("POST", "/api/faults/disable", **{"sec-fetch-site": site})).status == 200


@pytest.mark.trio
async def test_a_change_is_logged_with_who_made_it(api: Any, logged: list[dict[str, Any]]) -> None:
    """The address it came from, and the name that was sent, which proves nothing and is cut; looking is not logged."""
    await api("POST", "/api/rules/base/disable", **{"kproxy-who": "mara\u001b[31m" + "x" * 100})
    await api("POST", "/api/rules/base/enable", **{"kproxy-who": "M%C3%A1ra%1b%"})
    await api("GET", "/api/rules")
    await api("POST", "/api/check", "rules: []", kind="application/yaml")
    await api("DELETE", "/api/rules/nobody")
    told = [one for one in logged if one["event"] == "admin change"]

    assert [(one["operation"], one["of"], one["peer"]) for one in told] == [
        ("disable_rule", "base", "127.0.0.1:1"), ("enable_rule", "base", "127.0.0.1:1"),
    ]  # fmt: skip
    assert told[1]["who"] == "Mára?%"
    assert told[0]["who"].startswith("mara?[31mx")
    assert len(told[0]["who"]) <= 60


def test_every_operation_that_changes_something_says_that_it_may_be_refused() -> None:
    """In the description of the API."""
    for one in OPERATIONS:
        answers = description()["paths"][one.path][one.method.lower()]["responses"]
        told = "read_only" in answers["403"]["description"]
        assert told == (one.method != "GET" and one.name not in ASK), one.name


def test_without_a_token_this_machine_may_change_things() -> None:
    """A token for reading alone would tell nobody apart; the config refuses it."""
    request = Request({"type": "http", "headers": [(b"host", b"localhost")]})

    assert make_guard(AdminTokens(None, "look"), "127.0.0.1")(request)
    with pytest.raises(Problem, match="bearer token"):
        make_guard(AdminTokens("s3cret", "look"), "127.0.0.1")(request)


def admin_of(folder: Path, text: str) -> tuple[AdminConfig | None, list[str]]:
    """Return the admin address of a config with these settings, and its mistakes."""
    source = Source("c.yaml", "clusters: {main: {bootstrap: [b:9092]}}\n"
                    "listeners: [{name: main, bind: '127.0.0.1:0', cluster: main}]\n"
                    f"admin: {{bind: '127.0.0.1:9190', {text}}}\n")  # fmt: skip
    config = config_from(source, folder)
    return None if config is None else config.admin, source.lines()


def test_the_token_for_reading_is_in_a_file(tmp_path: Path) -> None:
    """Named from the config's folder; a line end behind it is none of it. `--admin` keeps both tokens."""
    (tmp_path / "look").write_text("look\n")
    config, mistakes = admin_of(tmp_path, "token: s3cret, read_token_file: look")

    assert config is not None, mistakes
    assert tokens_of(config) == AdminTokens("s3cret", "look")
    assert tokens_of(admin_from("0.0.0.0:9999", config)) == AdminTokens("s3cret", "look")
    assert "look" not in repr(config).replace("read_token", "")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            "read_token_file: look",
            "expected a token beside read_token, got none: without it, local users can change everything",
        ),
        ("token: look, read_token_file: look", "expected a read_token that differs"),
        ("token: s3cret, read_token_file: nowhere", "cannot be read: no such file"),
        ("token: s3cret, read_token_file: empty", "the secret is empty"),
        ("token: s3cret, read_token_file: 5", "a secret is text"),
        ("token: s3cret, read_token: look", 'unknown key "read_token"'),
    ],
)
def test_a_wrong_file_is_a_mistake_of_the_config(tmp_path: Path, settings: str, message: str) -> None:
    """With its place."""
    (tmp_path / "look").write_text("look\n")
    (tmp_path / "empty").write_text("\n")
    config, mistakes = admin_of(tmp_path, settings)

    assert config is None
    assert any(message in one and one.startswith("c.yaml:3:") for one in mistakes), mistakes


@pytest.mark.trio
async def test_every_answer_is_no_page_and_is_kept_nowhere(make_api: Callable[..., Any]) -> None:
    """Data, refusals, probes, what is not there; only the page's own files say something else."""
    made = make_api(token="s3cret", read="look")
    paths = [one.path.replace("{name}", "x").replace("{id}", "1") for one in OPERATIONS if one.method == "GET"]
    paths = [one for one in paths if one not in ("/api/view", "/api/tail")]
    assert len(paths) > 10
    for path in [*paths, "/nowhere", "/livez", "/readyz", "/metrics", "/api/openapi.json"]:
        for token in (LOOK, {}):
            for method in ("GET", "PUT"):
                headers = (await made(method, path, **token)).headers
                assert headers["x-content-type-options"] == "nosniff", path
                assert headers["content-security-policy"] == "default-src 'none'; frame-ancestors 'none'", path
                assert headers["cross-origin-resource-policy"] == "same-origin", path
                assert headers["cache-control"] == "no-store", path
    page = (await made("GET", "/view/")).headers
    assert "script-src 'self'" in page["content-security-policy"]
    assert page["cache-control"] == "no-cache"
