"""FLIP-135's subpartition, row by row."""

from __future__ import annotations

import random

import pytest

from airflow_recovery.errors import ChannelEvicted, ChannelFailed, ChannelInconsistent
from reference.segment_cleaning import clean
from reference.subpartition import (
    Barrier,
    Buffer,
    Polled,
    ReconnectableSubpartition,
    ReleaseCause,
    SubpartitionView,
)


def holding(*items: Buffer | Barrier) -> ReconnectableSubpartition:
    subpartition = ReconnectableSubpartition()
    for item in items:
        subpartition.add(item)
    return subpartition


def rest(view: SubpartitionView) -> list[bytes | Barrier]:
    found = []
    while (polled := view.poll()) is not None:
        found.append(polled.content)
        if isinstance(polled.content, Barrier):
            view.resume()
    return found


# --- one view --------------------------------------------------------------------------------------------------------


def test_a_new_view_releases_the_old_one():
    subpartition = holding(Buffer(b"ab"))
    old = subpartition.create_view()
    new = subpartition.create_view()
    for use in (old.poll, old.resume, old.consumed):
        with pytest.raises(ChannelEvicted):
            use()
    assert rest(new) == [b"ab"]


def test_what_an_old_view_releases_afterwards_is_not_the_new_one():
    subpartition = holding(Buffer(b"ab"))
    old = subpartition.create_view()
    new = subpartition.create_view()
    old.release()
    assert rest(new) == [b"ab"]


def test_releasing_a_view_does_not_release_the_subpartition():
    subpartition = holding(Buffer(b"ab"), Buffer(b"cd"))
    view = subpartition.create_view()
    view.poll()
    view.release()
    assert subpartition.released is None
    assert rest(subpartition.create_view()) == [b"cd"]


def test_numbers_begin_at_zero_again():
    subpartition = holding(Buffer(b"ab"), Buffer(b"cd"), Buffer(b"ef"))
    view = subpartition.create_view()
    assert [view.poll(), view.poll()] == [Polled(0, b"ab"), Polled(1, b"cd")]
    assert subpartition.create_view().poll() == Polled(0, b"ef")


def test_a_barrier_blocks_until_it_is_resumed():
    view = holding(Barrier(1), Buffer(b"ab")).create_view()
    assert view.poll() == Polled(0, Barrier(1))
    assert view.poll() is None
    view.resume()
    assert view.poll() == Polled(1, b"ab")


def test_a_new_view_is_not_blocked():
    subpartition = holding(Barrier(1), Buffer(b"ab"))
    subpartition.create_view().poll()
    assert subpartition.create_view().poll() == Polled(0, b"ab")


@pytest.mark.parametrize("seed", range(20))
def test_of_two_readers_that_ask_at_once_one_has_the_view_and_each_byte_is_read_once(seed):
    """The case that Flink leaves open (FLINK-19774): in whatever order two requests and their polls come."""
    rng = random.Random(seed)
    subpartition = holding(*(Buffer(bytes([number])) for number in range(12)))
    views: list[SubpartitionView] = []
    read: list[bytes | Barrier] = []
    for _ in range(200):
        if not views or rng.random() < 0.1:
            views.append(subpartition.create_view())
            continue
        view = rng.choice(views)
        if view is views[-1]:
            polled = view.poll()
            read += [] if polled is None else [polled.content]
        else:
            with pytest.raises(ChannelEvicted):
                view.poll()
    assert read == [bytes([number]) for number in range(12)]


def test_a_view_that_is_replaced_in_the_middle_of_a_record_cuts_it_for_the_next_one():
    """The cleanup flag is set by the hand-over, whatever the old view had read."""
    subpartition = holding(Buffer(b"ab"), Buffer(b"cd", leading=1), Buffer(b"ef"))
    assert subpartition.create_view().poll() == Polled(0, b"ab")
    assert rest(subpartition.create_view()) == [b"d", b"ef"]
    control = holding(Buffer(b"ab"), Buffer(b"cd", leading=1), Buffer(b"ef"))
    assert rest(control.create_view()) == [b"ab", b"cd", b"ef"], "the same view cuts nothing"


# --- torn records ----------------------------------------------------------------------------------------------------

TORN = [
    ([(0, b"abcd")], [b"abcd"]),  # a clean border
    ([(2, b"abcd")], [b"cd"]),  # the tail of a torn record
    ([(4, b"abcd")], []),  # nothing else is there yet
    ([(4, b"abcd"), (0, b"efgh")], [b"efgh"]),  # it ends with its buffer
    ([(4, b"abcd"), (1, b"efgh")], [b"fgh"]),  # over two buffers
    ([(4, b"abcd"), (4, b"efgh"), (1, b"ijkl")], [b"jkl"]),  # over three
    ([(2, b"abcd"), (2, b"efgh")], [b"cd", b"efgh"]),  # cleaning stops at the first border
]


@pytest.mark.parametrize(("buffers", "expected"), TORN)
def test_a_new_view_begins_with_a_whole_record(buffers, expected):
    subpartition = holding(*(Buffer(content, leading=leading) for leading, content in buffers))
    assert rest(subpartition.create_view()) == expected
    assert clean(buffers) == expected


def test_a_buffer_that_was_read_from_is_a_border_since_only_whole_writes_are_visible():
    buffer = Buffer(leading=2, is_finished=False)
    subpartition = holding(buffer)
    buffer.append(b"abcd")
    assert rest(subpartition.create_view()) == [b"cd"]
    buffer.append(b"ef")
    assert rest(subpartition.create_view()) == [b"ef"]


def test_a_leading_part_that_is_not_visible_yet_is_waited_for():
    buffer = Buffer(leading=4, is_finished=False)
    view = holding(buffer).create_view()
    assert view.poll() is None
    buffer.append(b"ab")
    assert view.poll() is None
    buffer.append(b"cdef")
    assert rest(view) == [b"ef"]


def test_the_same_view_reads_a_record_over_two_buffers():
    subpartition = holding(Buffer(b"ab"))
    view = subpartition.create_view()
    view.poll()
    subpartition.add(Buffer(b"cd", leading=1))
    assert rest(view) == [b"cd"]


def test_a_barrier_is_a_border():
    assert rest(holding(Barrier(1), Buffer(b"ab")).create_view()) == [Barrier(1), b"ab"]


@pytest.mark.parametrize("leading", [-1, 5])
def test_leading_bytes_that_are_not_in_the_buffer_are_refused(leading):
    with pytest.raises(ValueError, match="leading"):
        Buffer(b"abcd", leading=leading)
    with pytest.raises(ValueError, match="leading"):
        clean([(leading, b"abcd")])


# --- barriers --------------------------------------------------------------------------------------------------------


def test_barriers_up_to_the_highest_known_checkpoint_are_dropped():
    subpartition = holding(Barrier(1), Buffer(b"ab"), Barrier(2), Buffer(b"cd"), Barrier(3))
    assert rest(subpartition.create_view(highest_checkpoint=2)) == [b"ab", b"cd", Barrier(3)]


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (-1, [Barrier(1), b"ab", Barrier(2), b"cd", Barrier(3)]),
        (0, [Barrier(1), b"ab", Barrier(2), b"cd", Barrier(3)]),
        (1, [b"ab", Barrier(2), b"cd", Barrier(3)]),
        (3, [b"ab", b"cd"]),
        (9, [b"ab", b"cd"]),
    ],
)
def test_which_barriers_a_reader_sees(highest, expected):
    subpartition = holding(Barrier(1), Buffer(b"ab"), Barrier(2), Buffer(b"cd"), Barrier(3))
    assert rest(subpartition.create_view(highest_checkpoint=highest)) == expected


def test_a_dropped_barrier_blocks_nobody_and_has_no_number():
    view = holding(Buffer(b"ab"), Barrier(1), Buffer(b"cd")).create_view(highest_checkpoint=1)
    assert [view.poll(), view.poll()] == [Polled(0, b"ab"), Polled(1, b"cd")]


def test_a_barrier_that_comes_late_is_dropped_all_the_same():
    """Its producer did not restart, and has begun that checkpoint before its reader did."""
    subpartition = holding(Buffer(b"ab"))
    view = subpartition.create_view(highest_checkpoint=2)
    assert rest(view) == [b"ab"]
    subpartition.add(Barrier(2))
    subpartition.add(Buffer(b"cd"))
    subpartition.add(Barrier(3))
    assert rest(view) == [b"cd", Barrier(3)]


def test_each_view_has_its_own_highest_checkpoint():
    subpartition = holding(Buffer(b"ab"), Barrier(1), Buffer(b"cd"))
    subpartition.create_view(highest_checkpoint=1)
    assert rest(subpartition.create_view()) == [b"ab", Barrier(1), b"cd"]


def test_unaligned_barriers_are_refused():
    with pytest.raises(ChannelInconsistent, match="exclude each other"):
        ReconnectableSubpartition().add(Barrier(1, is_aligned=False))


# --- release ---------------------------------------------------------------------------------------------------------


def test_it_is_released_when_it_was_consumed_to_its_end():
    subpartition = holding(Buffer(b"ab"))
    view = subpartition.create_view()
    with pytest.raises(ChannelInconsistent, match="read to its end"):
        view.consumed()
    subpartition.finish()
    with pytest.raises(ChannelInconsistent, match="read to its end"):
        view.consumed()
    rest(view)
    view.consumed()
    assert subpartition.released is ReleaseCause.CONSUMED


def test_a_finished_producer_keeps_what_nobody_has_read():
    subpartition = holding(Buffer(b"ab"))
    subpartition.finish()
    assert rest(subpartition.create_view()) == [b"ab"]


@pytest.mark.parametrize("cause", [ReleaseCause.PRODUCER_END, ReleaseCause.JOB_END])
def test_it_goes_with_its_producer_and_with_the_job(cause):
    subpartition = holding(Buffer(b"ab"))
    view = subpartition.create_view()
    subpartition.release(cause)
    subpartition.release(ReleaseCause.JOB_END)
    assert subpartition.released is cause
    for use in (view.poll, subpartition.create_view, subpartition.finish, lambda: subpartition.add(Buffer(b"c"))):
        with pytest.raises(ChannelFailed, match=f"released \\({cause.value}\\)"):
            use()


@pytest.mark.parametrize("cause", ReleaseCause)
def test_what_was_released_stays_so_for_every_cause(cause):
    subpartition = holding(Buffer(b"ab"), Barrier(1))
    view = subpartition.create_view()
    view.poll()
    view.poll()
    subpartition.release(cause)
    with pytest.raises(ChannelFailed, match="must run again"):
        view.resume()
    view.release()
    assert subpartition.released is cause


def test_a_reader_that_goes_at_the_end_keeps_it_until_somebody_has_consumed_it():
    subpartition = holding(Buffer(b"ab"))
    subpartition.finish()
    view = subpartition.create_view()
    rest(view)
    view.release()
    assert subpartition.released is None
    subpartition.create_view().consumed()
    assert subpartition.released is ReleaseCause.CONSUMED


def test_nothing_comes_behind_the_end():
    subpartition = ReconnectableSubpartition()
    subpartition.finish()
    with pytest.raises(ChannelInconsistent, match="nothing behind its end"):
        subpartition.add(Buffer(b"ab"))


def test_a_finished_buffer_grows_no_more():
    with pytest.raises(ValueError, match="finished"):
        Buffer(b"ab").append(b"c")
