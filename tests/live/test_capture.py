"""Bounded capture, the engine's frames and the markers around a command's output."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.live.capture import Capture
from harness.live.docker_exec import _Frames, _Output


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces."""
    edges = sorted({place % (len(data) + 1) for place in places} | {0, len(data)})
    return [data[a:b] for a, b in pairwise(edges)]


places = st.lists(st.integers(0, 10_000), max_size=12)


@given(st.binary(max_size=300), st.integers(2, 80), places)
def test_capture_keeps_head_and_tail_however_it_is_fed(
    data: bytes, limit: int, at: list[int]
) -> None:
    capture = Capture(limit)
    for piece in cut(data, at):
        capture.feed(piece)
    kept, omitted = capture.result()
    assert len(kept) + omitted == len(data)
    if len(data) <= limit:
        assert kept == data
        return
    head, tail = data[: limit - limit // 2], data[len(data) - limit // 2 :]
    # at most three bytes on each side go to an unfinished character
    assert any(kept == head[: len(head) - i] + tail[j:] for i in range(4) for j in range(4))


@given(st.text(min_size=1, max_size=200), st.integers(8, 60), places)
def test_c10_the_cut_never_splits_a_character(text: str, limit: int, at: list[int]) -> None:
    data = text.encode()
    capture = Capture(limit)
    for piece in cut(data, at):
        capture.feed(piece)
    kept, omitted = capture.result()
    kept.decode()  # strict
    assert len(data) - limit <= omitted <= max(0, len(data) - limit + 6)


def test_capture_counts_whole_characters_at_the_cut() -> None:
    capture = Capture(8)
    capture.feed("abc€de".encode() + b"x" * 20 + "€yz".encode())  # 33 bytes
    # the first four end within a character, the last four begin within one
    assert capture.result() == (b"abcyz", 28)


def test_capture_memory_is_bounded() -> None:
    capture = Capture(1000)
    for _ in range(100_000):
        capture.feed(b"y\n")
    assert len(capture._head) + len(capture._tail) < 2100
    assert capture.result() == (b"y\n" * 500, 199_000)


def frame(kind: int, data: bytes) -> bytes:
    return bytes([kind, 0, 0, 0]) + len(data).to_bytes(4, "big") + data


@given(st.lists(st.tuples(st.sampled_from([1, 2]), st.binary(max_size=40)), max_size=8), places)
def test_frames_come_apart_at_any_chunking(parts: list[tuple[int, bytes]], at: list[int]) -> None:
    wire = b"".join(frame(kind, data) for kind, data in parts)
    frames, got = _Frames(), {1: b"", 2: b""}
    for chunk in cut(wire, at):
        for kind, piece in frames.split(chunk):
            got[kind] += piece
    for kind in (1, 2):
        assert got[kind] == b"".join(data for k, data in parts if k == kind)


@given(st.binary(max_size=60), st.integers(0, 255), st.binary(max_size=30), places)
def test_output_is_what_stands_between_the_markers(
    text: bytes, code: int, late: bytes, at: list[int]
) -> None:
    nonce = b"0123456789abcdef"
    out, err = _Output(nonce, 1000), _Output(nonce, 1000, began=True)
    for piece in cut(nonce + text + nonce + b" %d 3\n" % code + late, at):
        out.feed(piece)
    for piece in cut(text + nonce + late, at):
        err.feed(piece)
    assert out.began
    assert out.ended
    assert err.ended
    assert out.ending() == (code, 3)
    assert out.result() == err.result() == (text, 0)


@given(st.binary(max_size=60), places)
def test_output_without_an_end_is_kept_whole(text: bytes, at: list[int]) -> None:
    nonce = b"0123456789abcdef"
    out = _Output(nonce, 1000)
    for piece in cut(nonce + text + nonce[:9], at):
        out.feed(piece)
    assert not out.ended
    assert out.result() == (text + nonce[:9], 0)


def test_output_before_the_marker_is_the_engines() -> None:
    out = _Output(b"0123456789abcdef", 1000)
    out.feed(b"OCI runtime exec failed: no")
    assert not out.began
    assert out.before == b"OCI runtime exec failed: no"
    assert out.result() == (b"", 0)
