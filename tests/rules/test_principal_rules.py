"""Names from certificates, in the notation of Kafka's ssl.principal.mapping.rules."""

from __future__ import annotations

import re

import pytest

from kproxy.rules.values.tls import PrincipalRules

KAFKAS = [  # the example of Kafka's documentation
    r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/",
    r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
    r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L",
    "DEFAULT",
]


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        ("CN=serviceuser,OU=ServiceUsers,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "serviceuser"),
        ("CN=adminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown", "adminuser@admin"),
        ("O=x,cn=Bob.Smith", "bob.smith"),
        ("O=nobody", "O=nobody"),
    ],
)
def test_the_example_of_kafkas_documentation(subject: str, name: str) -> None:
    """The first rule that matches gives the name."""
    assert PrincipalRules(KAFKAS).name(subject) == name


@pytest.mark.parametrize(
    ("rule", "subject", "name"),
    [
        (r"RULE:CN=([^,]+)/$1/U", "CN=etl", "ETL"),
        (r"RULE:CN=([^,]+)/$1/", "CN=etl,O=x", None),  # all of it must match
        (r"RULE:CN=(a\/b)/$1\/c/", "CN=a/b", "a/b/c"),
        (r"RULE:(x)?CN=(.*)/$1$2/", "CN=etl", "etl"),
        (r"RULE:CN=(.*)/$0!/", "CN=etl", "CN=etl!"),
    ],
)
def test_rules(rule: str, subject: str, name: str | None) -> None:
    """Whole subjects, groups, escaped slashes, and what an absent group gives."""
    assert PrincipalRules([rule]).name(subject) == name


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("CN=(.*)", "expected RULE:pattern/replacement/"),
        ("RULE:CN=(.*)/$1/X", "expected RULE:pattern"),
        ("RULE:CN=(.*/$1/", "cannot be read: missing )"),
        ("RULE:(?=CN)/x/", "cannot be read"),
        ("RULE:CN=(.*)/$2/", "has $2, and its pattern has 1 groups"),
    ],
)
def test_rules_that_are_wrong(rule: str, reason: str) -> None:
    """They are refused when the config is read."""
    with pytest.raises(ValueError, match=re.escape(reason)):
        PrincipalRules([rule])
