"""Sealed documents: one spelling, and any change of it is found."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.errors import Corrupt, Incompatible
from holdfast.sealed import seal, unseal

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(max_size=10).filter(lambda k: k not in ("format", "version", "checksum")), values))
def test_what_was_sealed_comes_back(fields):
    assert unseal(seal("test", 1, fields), "test", 1, "it") == fields


@given(st.binary(max_size=200))
def test_bytes_that_nobody_sealed_are_corrupt(data):
    with pytest.raises(Corrupt, match="it is damaged"):
        unseal(data, "test", 1, "it")


@pytest.mark.parametrize(
    "respell",
    [
        lambda text: text.replace(",", ", "),
        lambda text: " " + text,
        lambda text: text + "\n",
        lambda text: text.replace('"a":1', '"a":1.0'),
        lambda text: text.replace('"a":1', '"a":true'),
        lambda text: text.replace('"a":1', '"a":1,"a":1'),
        lambda text: text.replace("\\u00fc", "ü"),
    ],
)
def test_another_spelling_of_the_same_document_is_damage(respell):
    text = seal("test", 1, {"a": 1, "ü": "x"})
    assert respell(text) != text
    with pytest.raises(Corrupt):
        unseal(respell(text), "test", 1, "it")


def test_a_reader_takes_its_own_and_older_versions():
    assert unseal(seal("test", 1, {}), "test", 3, "it") == {}
    with pytest.raises(Incompatible, match=r"it has version 4 of test; .* reads versions 1 to 3\. Upgrade"):
        unseal(seal("test", 4, {}), "test", 3, "it")
    with pytest.raises(Corrupt, match="expected a document of format 'other'"):
        unseal(seal("test", 1, {}), "other", 1, "it")


def test_numbers_that_are_no_json_cannot_be_sealed():
    with pytest.raises(ValueError, match="not JSON compliant"):
        seal("test", 1, {"a": float("nan")})
