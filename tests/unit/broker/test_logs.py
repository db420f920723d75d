"""Log lines: quiet by default, tracebacks with the error and without anybody's data."""

import pytest

from tidelog.broker import logs


def test_an_internal_error_shows_where_it_happened_but_not_the_values(capsys: pytest.CaptureFixture[str]) -> None:
    record_body = "canary-" + "7f3a"
    try:
        {}[record_body[:0]]
    except KeyError:
        logs.get_logger("test").exception("request failed", peer="127.0.0.1:1")
    written = capsys.readouterr().err
    assert "request failed" in written
    assert "test_logs.py" in written
    assert "canary-7f3a" not in written


def test_only_warnings_are_shown_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    log = logs.get_logger("test")
    log.info("nothing to see")
    log.warning("look here")
    written = capsys.readouterr().err
    assert "look here" in written
    assert "nothing to see" not in written
