"""Join tokens as lines: parts and lines go into each other, and what is no line says so without its secret."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.model.join_line import JoinLine, parse

SUM = "0123456789abcdef" * 4
SECRETS = st.text("abcXYZ019_-", min_size=1, max_size=60)
URLS = st.sampled_from(
    ["https://h:7443", "https://[fd00::1]:7443", "http://127.0.0.1:8080", "https://h/base"]
)


@given(SECRETS, URLS, st.sampled_from(["", SUM]))
def test_parts_come_back(secret: str, url: str, ca_sha256: str) -> None:
    line = JoinLine(secret, url, ca_sha256 if url.startswith("https:") else "")
    assert parse(line.text) == line
    assert parse(f"\n {line.text} \r\n") == line


@given(SECRETS)
def test_a_bare_secret_is_a_line(secret: str) -> None:
    assert parse(secret) == JoinLine(secret)
    assert JoinLine(secret).text == secret


def test_digits_may_be_written_large() -> None:
    assert parse(f"s@https://h#sha256:{SUM.upper()}").ca_sha256 == SUM


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "it is empty"),
        ("hidden more", "got more"),
        ("hidden@", "a part is missing"),
        ("@https://h", "a part is missing"),
        ("hidden@#sha256:" + SUM, "a part is missing"),
        ("hidden@https://h#", "cut or changed"),
        ("hidden@https://h#sha256:", "cut or changed"),
        (f"hidden@https://h#sha256:{SUM[:-1]}", "cut or changed"),
        (f"hidden@https://h#sha256:{SUM}0", "cut or changed"),
        (f"hidden@https://h#sha256:{SUM[:-1]}g", "cut or changed"),
        (f"hidden@https://h#md5:{SUM}", "cut or changed"),
        (f"hidden@https://h#{SUM}", "cut or changed"),
        (f"hidden@http://h:7443#sha256:{SUM}", "is not https"),
        (f"hidden@unix:/run/x#sha256:{SUM}", "is not https"),
    ],
)
def test_what_is_no_line_says_so_without_its_secret(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words) as raised:
        parse(text)
    assert "hidden" not in str(raised.value)
