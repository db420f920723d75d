"""Patterns of subscriptions: RE2's language over topic names, and nothing a client sends can be slow."""

import re
from contextlib import suppress
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidelog.errors import ErrorCode
from tidelog.groups.consumer_errors import InvalidRegularExpression
from tidelog.groups.regex import TopicPattern


def matches(pattern: str, name: str) -> bool:
    return bool(TopicPattern(pattern).select([name]))


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("orders", "orders", "orders-eu"),
        ("orders-.*", "orders-eu", "my-orders-eu"),
        ("^orders$", "orders", "xorders"),
        ("(eu|us)\\.orders", "us.orders", "usxorders"),
        ("a|bc", "bc", "ac"),
        ("a?b*c+", "bbc", "ab"),
        ("a*?b", "aab", "aa"),
        ("x{2}", "xx", "x"),
        ("x{2,}y", "xxxxy", "xy"),
        ("x{1,2}y", "xxy", "xxxy"),
        ("x{,2}", "x{,2}", "xx"),
        ("[a-c]+", "abc", "abd"),
        ("[^a-c]", "d", "a"),
        ("[]a]", "a", "b"),
        ("[a-]", "-", "b"),
        ("[[:digit:]_]+", "1_2", "a"),
        ("[[:^alpha:]]", "1", "a"),
        ("\\d\\w\\D\\W", "1ab-", "1abc"),
        ("[\\d.]+", "1.2", "1-2"),
        ("(?i)ORDERS", "orders", "order"),
        ("(?i:O)rders", "orders", "oRders"),
        ("(?i)a(?-i:B)", "AB", "Ab"),
        ("(?P<name>a)(?<other>b)(?:c)", "abc", "ab"),
        ("\\Aa\\z", "a", "aa"),
        ("(^a|b)c", "ac", "c"),
        ("(|a)b", "b", "c"),
        ("\\.\\-\\_", ".-_", "..."),
    ],
)
def test_pattern(pattern: str, yes: str, no: str) -> None:
    assert matches(pattern, yes)
    assert not matches(pattern, no)


@pytest.mark.parametrize(
    "pattern",
    ["(", "a)", "*", "a**", "a*+", "a{2}{3}+*", "[a", "[z-a]", "[[:nope:]]", "\\", "\\1", "\\b", "\\pL", "(?=a)",
     "(?!a)", "(?<=a)", "(?<!a)", "(?>a)", "(?x)a", "(?", "(?P<", "(?P<1>a)", "a{1001}", "a{3,2}",
     "(" * 200 + ")" * 200, "((a{1000}){1000}){1000}", "((){1000}){1000}", "a" * 5000],
)  # fmt: skip
def test_a_pattern_that_cannot_be_is_refused(pattern: str) -> None:
    with pytest.raises(InvalidRegularExpression) as caught:
        TopicPattern(pattern)
    assert caught.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


@pytest.mark.parametrize(
    "pattern",
    ["(a+)+b", "(a|a)*b", "(.*){1000}", "(a?){200}a{200}", ".*a.{90}" * 9, "(.{0,9}){90}", "(((){1000}){1000}){1000}"],
)
def test_no_pattern_is_slow(pattern: str) -> None:
    names = ["a" * 248 + str(n % 10) for n in range(1000)] + ["ab-" * 83]
    started = perf_counter()
    with suppress(InvalidRegularExpression):
        TopicPattern(pattern).select(names)
    assert perf_counter() - started < 5


pieces = st.sampled_from(["a", "b", "-", ".", "[ab]", "[^a]", "^", "$", "\\.", "\\w"])
patterns = st.recursive(
    pieces,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{0,}", "*?"])).map(
            lambda pair: f"({pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=8,
)


@settings(max_examples=500, deadline=None)
@given(patterns, st.lists(st.text("ab-.", min_size=1, max_size=8), max_size=10))
def test_it_agrees_with_pythons_own(pattern: str, names: list[str]) -> None:
    assert TopicPattern(pattern).select(names) == {name for name in names if re.fullmatch(pattern, name)}
