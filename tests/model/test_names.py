"""Ids as path segments (fault 45) and keys that stay below their base."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_recovery.model.names import decode, encode
from airflow_recovery.store.object_store import checked_key, checked_prefix

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300)
short_ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
awkward = st.text(st.sampled_from("ab/._~%2FE=:*{}[]? \\\n\0é日🙂"), min_size=1, max_size=12)


@given(st.one_of(short_ids, awkward))
def test_fault_45_a_name_gives_its_id_back(name: str) -> None:
    assert decode(encode(name)) == name


@given(st.one_of(ids, awkward), st.one_of(ids, awkward))
def test_fault_45_two_ids_never_share_a_name(one: str, two: str) -> None:
    assert (encode(one) == encode(two)) == (one == two)


@given(st.one_of(ids, awkward))
def test_fault_45_a_name_is_one_visible_segment(name: str) -> None:
    segment = encode(name)
    assert len(segment) <= 100
    assert segment.isascii()
    assert not set(segment) & set("/\\%*?[]{}=: \n\0")
    assert segment[0] not in "._"
    assert checked_key(f"a/{segment}/b") == f"a/{segment}/b"


@pytest.mark.parametrize(
    ("name", "segment"),
    [
        ("by_route", "by_route"),
        ("fault 45", "fault~2045"),
        ("a/b", "a~2Fb"),
        ("a_b", "a_b"),
        ("%2F", "~252F"),
        (".", "~2E"),
        ("..", "~2E."),
        ("_probe", "~5Fprobe"),
        ("a~2Fb", "a~7E2Fb"),
        ("é", "~C3~A9"),
    ],
)
def test_fault_45_names_are_readable(name: str, segment: str) -> None:
    assert encode(name) == segment


def test_fault_45_four_long_ids_fit_into_one_key() -> None:
    names = [letter * 250 for letter in "é日🙂a"]
    key = "/".join(encode(name) for name in names) + "/t/00000001.outcome"
    assert len(key.encode()) < 1024 / 2
    assert len({encode("🙂" * 250), encode("🙂" * 249 + "é"), encode("🙂" * 249)}) == 3


def test_a_shortened_name_does_not_cut_an_escape_and_is_not_decoded() -> None:
    segment = encode("a" * 59 + "é" * 100)
    assert segment.startswith("a" * 59 + "~~")
    with pytest.raises(ValueError, match="shortened"):
        decode(segment)


@pytest.mark.parametrize("segment", ["", "a/b", "~2f", "~41", "_a", ".", "a~", "~FF", "é"])
def test_only_names_made_by_encode_are_decoded(segment: str) -> None:
    with pytest.raises(ValueError, match=r"expected|decode"):
        decode(segment)


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        encode("")


def test_fault_45_negative_control_plain_joining_would_mix_ids_and_leave_the_prefix() -> None:
    def joined(*names: str) -> str:
        return "/".join(names)

    assert joined("a/b", "c") == joined("a", "b/c")
    with pytest.raises(ValueError, match="below the base"):
        checked_key(joined("dag", "..", "..", "other"))


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "..", "a/../../b", "./a", "a/.", "a\0b"])
def test_keys_outside_the_base_are_refused(key: str) -> None:
    with pytest.raises(ValueError, match="below the base"):
        checked_key(key)


@pytest.mark.parametrize("prefix", ["/", "..", "../", "a/../b", "a//b", "\0"])
def test_prefixes_outside_the_base_are_refused(prefix: str) -> None:
    with pytest.raises(ValueError, match="below the base"):
        checked_prefix(prefix)


@pytest.mark.parametrize("prefix", ["", "a", "a/", "a/b", "a/.", "a/b.c"])
def test_a_prefix_may_end_anywhere(prefix: str) -> None:
    assert checked_prefix(prefix) == prefix
