"""The components of a fingerprint, and what a change of one does to it."""

from dataclasses import replace

import pytest

from airflow_recovery.model.components import (
    Component,
    ComponentChange,
    changes,
    components_of,
    fingerprint_of,
    unseen_in,
    value_of,
)

CODE = Component("application /app/clean.py", "sha256:1")
IMAGE = Component("image", "spark:4", seen=False, decides=False)
REMOTE = Component("application s3a://code/clean.py", "s3a://code/clean.py", seen=False)


def test_a_fingerprint_has_32_hex_digits() -> None:
    assert len(fingerprint_of([CODE])) == 32
    assert int(fingerprint_of([CODE]), 16) >= 0


@pytest.mark.parametrize(
    "other",
    [
        [],
        [replace(CODE, value="sha256:2")],
        [replace(CODE, name="application")],
        [CODE, REMOTE],
        [CODE, CODE],
    ],
)
def test_another_decisive_component_gives_another_fingerprint(other: list[Component]) -> None:
    assert fingerprint_of(other) != fingerprint_of([CODE])


def test_the_order_of_components_counts() -> None:
    assert fingerprint_of([CODE, REMOTE]) != fingerprint_of([REMOTE, CODE])


def test_a_component_that_does_not_decide_is_not_in_the_fingerprint() -> None:
    assert fingerprint_of([CODE, IMAGE]) == fingerprint_of([CODE])
    assert fingerprint_of([CODE, replace(IMAGE, value="spark:5")]) == fingerprint_of([CODE])


def test_whether_a_value_was_seen_is_not_in_the_fingerprint() -> None:
    assert fingerprint_of([replace(REMOTE, seen=True)]) == fingerprint_of([REMOTE])


def test_names_and_values_do_not_run_into_each_other() -> None:
    assert fingerprint_of([Component("a", "bc")]) != fingerprint_of([Component("ab", "c")])


def test_changes_show_both_sides_and_which_decide() -> None:
    new, image = replace(CODE, value="sha256:2"), replace(IMAGE, value="spark:5")
    found = changes([CODE, IMAGE, REMOTE], [new, image])
    assert found == (
        ComponentChange(CODE.name, CODE, new),
        ComponentChange("image", IMAGE, image),
        ComponentChange(REMOTE.name, REMOTE, None),
    )
    assert [change.decides for change in found] == [True, False, True]
    assert changes([CODE, IMAGE], [IMAGE, CODE]) == ()


def test_unseen_are_the_decisive_components_that_could_not_be_read() -> None:
    assert unseen_in([CODE, IMAGE, REMOTE]) == (REMOTE,)


def test_short_values_stay_readable_and_long_ones_are_digests() -> None:
    assert value_of(["--day", "2026-01-01"]) == '["--day","2026-01-01"]'
    assert value_of("x" * 1000).startswith("sha256:")
    assert len(value_of("x" * 1000)) == 71
    assert components_of([("arguments", ["1"])]) == (Component("arguments", '["1"]'),)
