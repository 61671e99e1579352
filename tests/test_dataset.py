"""Reading a folder in GAIA's layout, selecting from it, and its digests."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness import dataset as data
from harness.dataset import Dataset, load, select, selection_digest, selection_note
from harness.errors import DataError, LackError, UsageError
from tests.gaia_folder import LAYOUTS, row, write_folder, write_parquet

FILE = "b.csv"
ROWS = [
    row("c", Level=3),
    row("a", Level=1),
    row("b", Level=2, file_name=FILE, file_path="2023/validation/b.csv"),
]
FILES = {FILE: b"fruit,kg\nquince,4\n", "other.txt": b"of another question"}


def jsonl(root: Path, content: bytes | str, files: dict[str, bytes] | None = None) -> Path:
    """A folder whose metadata.jsonl has exactly this content."""
    write_folder(root, [], files=files)
    path = root / "2023" / "validation" / "metadata.jsonl"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return root


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(values) + "\n" for values in rows)


def ids(dataset: Dataset) -> list[str]:
    return [item.sample.task_id for item in dataset.items]


def needs_pyarrow(layout: str) -> None:
    if layout != "jsonl":
        pytest.importorskip("pyarrow")


# ----------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("inside", [False, True], ids=["root", "split folder"])
def test_b01_every_layout_gives_the_same_samples(tmp_path: Path, layout: str, inside: bool) -> None:
    needs_pyarrow(layout)
    root = write_folder(tmp_path / "set", ROWS, layout=layout, files=FILES)
    read = load(root / "2023" / "validation" if inside else root)
    reference = load(write_folder(tmp_path / "reference", ROWS, files=FILES))
    assert ids(read) == ["a", "b", "c"]
    assert [item.sample for item in read.items] == [item.sample for item in reference.items]
    assert [item.truth for item in read.items] == ["green a", "green b", "green c"]
    assert [item.subset for item in read.items] == ["2023_level1", "2023_level2", "2023_level3"]
    assert read.digest == reference.digest
    assert read.id == "set"
    assert read.items[1].path == (root / "2023" / "validation" / FILE).resolve()


def test_b01_no_metadata_names_both_paths(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path)
    assert str(tmp_path / "2023" / "validation" / "metadata.jsonl") in caught.value.message
    assert str(tmp_path / "2023" / "validation" / "metadata.parquet") in caught.value.message
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("content", ["", "\n\n", lines(row("0-0-0-0-0"))])
def test_b01_no_sample_names_both_paths(tmp_path: Path, content: str) -> None:
    with pytest.raises(DataError, match=r"no samples.*metadata\.jsonl.*metadata\.parquet"):
        load(jsonl(tmp_path, content))


def test_jsonl_is_preferred_and_needs_no_pyarrow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyarrow")
    root = write_folder(tmp_path, ROWS, layout="both", files=FILES)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    assert len(load(root).items) == 3
    (root / "2023" / "validation" / "metadata.jsonl").unlink()
    with pytest.raises(LackError, match=r"gaia-harness\[parquet\]"):
        load(root)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    root = write_folder(tmp_path, ROWS, layout="parquet", files=FILES)
    path = root / "2023" / "validation" / "metadata.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"metadata\.parquet cannot be read"):
        load(root)


def test_a_split_folder_of_another_split_is_refused(tmp_path: Path) -> None:
    root = write_folder(tmp_path, [row("t", Final_answer="?")], split="test")
    with pytest.raises(UsageError, match="--split test"):
        load(root / "2023" / "test")
    with pytest.raises(UsageError, match="validation and test"):
        load(root, split="dev")
    assert ids(load(root / "2023" / "test", split="test")) == ["t"]


def test_the_packaged_set_is_whole() -> None:
    mini = load(data.MINI)
    assert mini.id == "mini"
    assert len(mini.items) >= 24
    assert {item.subset for item in mini.items} == {f"2023_level{n}" for n in (1, 2, 3)}
    assert sum(item.path is not None for item in mini.items) >= 12
    assert all(item.truth != "?" for item in mini.items)


# ------------------------------------------------------------------------------------------- rows


@pytest.mark.parametrize("level", [1, "1", 1.0])
def test_b02_level_is_a_number_or_its_text(tmp_path: Path, level: object) -> None:
    read = load(jsonl(tmp_path, lines(row("a", Level=level))))
    assert read.items[0].sample.level == 1
    assert type(read.items[0].sample.level) is int


@pytest.mark.parametrize(
    "level", [4, 0, None, "1.0", "", " 1", "１", 1.5, True, [1], {}, float("nan"), "x" * 999]
)
def test_b02_another_level_names_the_sample(tmp_path: Path, level: object) -> None:
    with pytest.raises(DataError, match=r"line 2.*'odd'.*level") as caught:
        load(jsonl(tmp_path, lines(row("a"), row("odd", Level=level))))
    assert len(caught.value.message) < 400


def test_b02_a_gap_in_a_parquet_level_names_the_sample(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    root = write_folder(tmp_path, [row("a")], layout="parquet")
    path = root / "2023" / "validation" / "metadata.parquet"
    write_parquet(path, [row("a", Level=1.0), row("odd", Level=None)])
    with pytest.raises(DataError, match=r"row 2.*'odd'"):
        load(root)


def test_b03_the_placeholder_row_is_skipped(tmp_path: Path) -> None:
    placeholder = row("0-0-0-0-0", Level=None, file_name="nowhere.pdf")
    root = jsonl(tmp_path, lines(row("a"), placeholder, row("b"), row("c")))
    assert ids(load(root)) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("split", "counts", "warned"),
    [
        ("validation", (53, 86, 26), False),
        ("validation", (53, 86, 25), True),
        ("test", (93, 159, 49), False),
        ("test", (53, 86, 26), True),
    ],
)
def test_b03_the_count_of_gaia_is_checked(
    tmp_path: Path, split: str, counts: tuple[int, ...], warned: bool
) -> None:
    rows = [
        row(f"{level}-{n}", Level=level)
        for level, count in enumerate(counts, 1)
        for n in range(count)
    ]
    root = write_folder(tmp_path, rows, split=split)
    for name in ("gaia-benchmark/GAIA", "AI/gaia"):
        warnings = load(root, split=split, id=name).warnings
        assert bool(warnings) is warned
        assert all("/".join(map(str, counts)) in warning for warning in warnings)
    assert load(root, split=split, id="someone/mini-gaia").warnings == ()


def test_the_same_id_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"line 3.*'a' is there twice"):
        load(jsonl(tmp_path, lines(row("a"), row("b"), row("a", Question="another?"))))


@pytest.mark.parametrize("column", ["task_id", "Question", "Level", "Final answer", "file_name"])
@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_a_missing_column_is_named(tmp_path: Path, column: str, layout: str) -> None:
    needs_pyarrow(layout)
    values = row("a")
    del values[column]
    root = write_folder(tmp_path, [row("a")], layout=layout)
    if layout == "jsonl":
        jsonl(tmp_path, lines(values))
    else:
        write_parquet(root / "2023" / "validation" / "metadata.parquet", [values])
    with pytest.raises(DataError, match=f"(line|row) 1: no column '{column}'"):
        load(root)


@pytest.mark.parametrize("column", ["task_id", "Question", "Final answer", "file_name"])
@pytest.mark.parametrize("value", [5, 1.5, True, ["x"], {"x": 1}])
def test_a_wrong_type_is_named(tmp_path: Path, column: str, value: object) -> None:
    with pytest.raises(DataError, match=f"line 2: '{column}' must be a text"):
        load(jsonl(tmp_path, lines(row("z"), row("a") | {column: value})))


@pytest.mark.parametrize("column", ["task_id", "Question", "Final answer"])
@pytest.mark.parametrize("value", [None, "", " \t", float("nan")])
def test_an_empty_text_is_refused_before_it_costs(
    tmp_path: Path, column: str, value: object
) -> None:
    with pytest.raises(DataError, match=f"line 1: '{column}' must be a text"):
        load(jsonl(tmp_path, lines(row("a") | {column: value})))


@pytest.mark.parametrize("truth", ["?", "", None, float("nan"), " ? "])
def test_a05_truths_of_the_test_split_are_unknown(tmp_path: Path, truth: object) -> None:
    bare = row("b")
    del bare["Final answer"]
    root = write_folder(tmp_path, [row("a", Final_answer=truth), bare], split="test")
    assert [item.truth for item in load(root, split="test").items] == ["?", "?"]


def test_no_message_shows_a_question_or_a_truth(tmp_path: Path) -> None:
    secret = row("a", Question="the secret question", Final_answer="the secret truth")
    changes: list[dict[str, Any]] = [
        {"Level": 4},
        {"Level": None},
        {"file_name": "../x"},
        {"file_name": "gone.txt"},
        {"file_name": 3},
        {"task_id": 3},
    ]
    broken = [lines(secret | change) for change in changes]
    broken += [lines(secret)[:-3], lines(secret, secret), lines(secret).strip() + "{}"]
    for content in broken:
        with pytest.raises(DataError) as caught:
            load(jsonl(tmp_path, content))
        assert "secret" not in str(caught.value)
    assert "secret" not in repr(load(jsonl(tmp_path, lines(secret))))


# --------------------------------------------------------------------------------------- encodings

TEXT = lines(*ROWS)


@pytest.mark.parametrize(
    "content",
    [
        TEXT.encode("utf-8-sig"),
        TEXT.encode("utf-16"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        TEXT.encode("utf-32"),
        TEXT.replace("\n", "\r\n").encode(),
        TEXT.replace("\n", "\n \n\n").encode(),
        TEXT.strip().encode(),
    ],
    ids=["bom", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "crlf", "blank lines", "no end"],
)
def test_encodings_and_line_ends_change_nothing(tmp_path: Path, content: bytes) -> None:
    plain = load(jsonl(tmp_path / "plain", TEXT, FILES))
    assert load(jsonl(tmp_path / "other", content, FILES)).digest == plain.digest


def test_line_separators_in_a_text_do_not_split_the_line(tmp_path: Path) -> None:
    question = "one\u2028two\x85three\u2029four\x0bfive"
    content = json.dumps(row("a", Question=question), ensure_ascii=False).replace("\v", "\\u000b")
    assert load(jsonl(tmp_path, content)).items[0].sample.question == question


def test_lone_surrogates_are_kept(tmp_path: Path) -> None:
    read = load(jsonl(tmp_path, lines(row("a\ud800", Question="what \udfff?"))))
    assert read.items[0].sample.question == "what \udfff?"
    assert select(read, shuffle_seed=1) == read.items
    assert selection_digest(read.items)


@pytest.mark.parametrize(
    ("second", "problem"),
    [
        ("Gr\u00f6\u00dfe".encode("latin-1"), "not valid UTF-8"),
        (b'{"task_id": "b"', "not valid JSON"),
        (b"{'task_id': 'b'}", "not valid JSON"),
        (b"\xef\xbb\xbf{}", "not valid JSON"),
        (b"[]", "JSON object"),
        (b"7", "JSON object"),
        (b'{"Level": ' + b"1" * 5000 + b"}", "too long"),
        (b"[" * 100_000, "too deep"),
        (b"{}\r{}", "not valid JSON"),
    ],
)
def test_what_cannot_be_read_is_named_with_its_line(
    tmp_path: Path, second: bytes, problem: str
) -> None:
    content = lines(row("a")).encode() + second + b"\n" + lines(row("c")).encode()
    with pytest.raises(DataError, match=rf"metadata\.jsonl, line 2: .*{problem}"):
        load(jsonl(tmp_path, content))


def test_half_a_utf16_file_is_named_with_its_line(tmp_path: Path) -> None:
    content = lines(row("a"), row("b")).encode("utf-16")[:-3]
    with pytest.raises(DataError, match="line 2: not valid UTF-16"):
        load(jsonl(tmp_path, content))


# ------------------------------------------------------------------------------------- attachments


@pytest.mark.parametrize("layout", ["jsonl", "parquet"])
def test_b04_three_ways_to_have_no_file(tmp_path: Path, layout: str) -> None:
    needs_pyarrow(layout)
    rows = [row("a", file_name=""), row("b", file_name=None)]
    if layout == "jsonl":
        rows.append(row("c", file_name=float("nan")))
    for item in load(write_folder(tmp_path, rows, layout=layout)).items:
        assert (item.path, item.sample.file_name, item.sample.attachment) == (None, "", None)
        assert not item.missing_file


def test_b04_a_parquet_column_of_gaps_only(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    root = write_folder(tmp_path, [row("a")], layout="parquet")
    path = root / "2023" / "validation" / "metadata.parquet"
    write_parquet(path, [row("a", file_name=float("nan")), row("b", file_name=float("nan"))])
    assert [item.sample.file_name for item in load(root).items] == ["", ""]


@pytest.mark.parametrize(
    "file_path", ["/home/ada/.cache/hub/b.csv", "2023/test/b.csv", "../../b.csv", "", None]
)
def test_b04_file_path_is_never_trusted(tmp_path: Path, file_path: str | None) -> None:
    rows = [row("b", file_name=FILE, file_path=file_path)]
    item = load(write_folder(tmp_path, rows, files=FILES)).items[0]
    assert item.path == (tmp_path / "2023" / "validation" / FILE).resolve()
    assert item.path.read_bytes() == FILES[FILE]


@pytest.mark.parametrize(
    "name",
    [
        "..",
        ".",
        "../b.csv",
        "../../../../etc/hostname",
        "/etc/hostname",
        "sub/b.csv",
        "sub\\b.csv",
        "..\\b.csv",
        "C:b.csv",
        "\\\\host\\share",
        "b.csv\0",
        "b\ud800.csv",
        "x" * 5000,
        "metadata.jsonl",
        "key.txt",
        "hard.txt",
        "split.txt",
    ],
)
def test_b04_b07_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    root = jsonl(tmp_path, lines(row("odd", file_name=name)), FILES)
    folder = root / "2023" / "validation"
    (folder / "sub").mkdir()
    (folder / "sub" / "b.csv").write_text("in a folder")
    (folder / "key.txt").symlink_to("metadata.jsonl")
    os.link(folder / "metadata.jsonl", folder / "hard.txt")
    (root / "2023" / "test").mkdir(exist_ok=True)
    (root / "2023" / "test" / "metadata.jsonl").write_text("the other split's answers")
    (folder / "split.txt").symlink_to("../test/metadata.jsonl")
    with pytest.raises(DataError, match=r"line 1: sample 'odd'") as caught:
        load(root, allow_missing_files=True)
    plain = not set(name) & set("/\\\0:") and name not in (".", "..")
    assert plain is ("only a plain name" not in caught.value.message)


@pytest.mark.parametrize("kind", ["folder", "pipe", "link out", "link to itself"])
def test_only_files_of_the_data_set_are_attachments(tmp_path: Path, kind: str) -> None:
    root = write_folder(tmp_path / "set", [row("odd", file_name="x")])
    path = root / "2023" / "validation" / "x"
    (tmp_path / "outside").write_text("outside")
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to(tmp_path / "outside" if kind == "link out" else "x")
    with pytest.raises(DataError, match="sample 'odd'"):
        load(root, allow_missing_files=True)


def test_links_inside_the_data_set_are_followed(tmp_path: Path) -> None:
    root = write_folder(tmp_path, [row("a", file_name="x.txt")])
    (root / "shared.txt").write_text("shared")
    (root / "2023" / "validation" / "x.txt").symlink_to("../../shared.txt")
    assert load(root).items[0].path == (root / "shared.txt").resolve()


def test_links_of_a_hub_cache_are_followed(tmp_path: Path) -> None:
    """huggingface_hub keeps contents in `blobs` and links to them from `snapshots/<revision>`."""
    repository = tmp_path / "datasets--someone--set"
    root = write_folder(repository / "snapshots" / "0123abcd", ROWS)
    (repository / "blobs").mkdir()
    (repository / "blobs" / "f00").write_bytes(FILES[FILE])
    (root / "2023" / "validation" / FILE).symlink_to("../../../../blobs/f00")
    plain = load(write_folder(tmp_path / "plain", ROWS, files=FILES))
    assert load(root).digest == plain.digest


def test_b06_missing_attachments_stop_the_run_unless_allowed(tmp_path: Path) -> None:
    rows = [*ROWS, row("d", file_name="gone.pdf"), row("e", file_name="away.png")]
    root = write_folder(tmp_path, rows, files=FILES)
    with pytest.raises(DataError, match=r"2 of 5 samples .*'d', 'e'"):
        load(root)
    read = load(root, allow_missing_files=True)
    assert [item.sample.task_id for item in read.items if item.missing_file] == ["d", "e"]
    assert read.items[3].sample.file_name == "gone.pdf"
    assert any("'d', 'e'" in warning for warning in read.warnings)


def test_git_lfs_pointers_are_not_taken_for_the_file(tmp_path: Path) -> None:
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    root = write_folder(tmp_path, ROWS, files={FILE: pointer})
    with pytest.raises(DataError, match="git lfs pull"):
        load(root)
    with pytest.raises(DataError, match="git lfs pull"):
        load(jsonl(tmp_path, pointer))


# ------------------------------------------------------------------------------------------ digest


def test_b11_two_hubs_two_layouts_one_digest(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    old = write_folder(tmp_path / "modelscope", ROWS, files=FILES)
    moved = [values | {"file_path": "/cache/x", "Annotator Metadata": None} for values in ROWS]
    new = write_folder(tmp_path / "hf", moved[::-1], layout="parquet", files=FILES)
    first = load(old, id="AI/GAIA", revision="master")
    second = load(new, id="gaia-benchmark/GAIA", revision="682dd72")
    assert first.digest == second.digest
    assert ids(first) == ids(second)
    assert (first.revision, second.revision) == ("master", "682dd72")
    assert selection_digest(select(first, limit=2)) == selection_digest(select(second, limit=2))


def test_the_digest_covers_what_the_loop_sees_and_nothing_else(tmp_path: Path) -> None:
    def digest(change: dict[str, Any], content: bytes = FILES[FILE]) -> str:
        root = write_folder(Path(tempfile.mkdtemp(dir=tmp_path)), [row("a", file_name=FILE)])
        files = {FILE: content, "b2.csv": content}
        return load(jsonl(root, lines(row("a", file_name=FILE) | change), files)).digest

    same = digest({})
    seen = {
        "attachment": f"sha256:{sha256(FILES[FILE]).hexdigest()}",
        "file_name": FILE,
        "level": 1,
        "question": row("a")["Question"],
        "task_id": "a",
    }
    text = json.dumps([seen], separators=(",", ":"), sort_keys=True)
    assert same == f"sha256:{sha256(text.encode()).hexdigest()}"
    for change in ({"Final answer": "red"}, {"file_path": "z"}, {"Annotator Metadata": 1}):
        assert digest(change) == same
    changes: list[dict[str, Any]] = [
        {"task_id": "b"},
        {"Question": "When?"},
        {"Level": 2},
        {"file_name": "b2.csv"},
    ]
    others = {same, digest({}, b"other bytes"), *(digest(change) for change in changes)}
    assert len(others) == 6


texts = st.text(min_size=1).filter(str.strip)
sets = st.lists(
    st.tuples(texts, texts, st.integers(1, 3), texts),
    min_size=1,
    max_size=6,
    unique_by=lambda values: values[0],
).map(
    lambda rows: [
        row(task_id, Question=question, Level=level, Final_answer=truth)
        for task_id, question, level, truth in rows
    ]
)


@settings(max_examples=40, deadline=None)
@given(rows=sets, layout=st.sampled_from(LAYOUTS), order=st.randoms())
def test_digest_is_independent_of_layout_row_order_and_level_type(
    rows: list[dict[str, Any]], layout: str, order: random.Random
) -> None:
    needs_pyarrow(layout)
    mixed = order.sample(rows, len(rows))
    if layout == "jsonl":
        mixed = [values | {"Level": order.choice([int, str, float])(1)} for values in mixed]
        rows = [values | {"Level": 1} for values in rows]
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        a = load(write_folder(Path(first), rows))
        b = load(write_folder(Path(second), mixed, layout=layout))
    assert a.digest == b.digest
    assert a.items == b.items


# --------------------------------------------------------------------------------------- selection


def made(*task_ids: str) -> Dataset:
    """A data set in memory, levels in turn."""
    with tempfile.TemporaryDirectory() as root:
        rows = [row(task_id, Level=1 + len(task_id) % 3) for task_id in task_ids]
        return load(write_folder(Path(root), rows), id="made")


SET = made(*(f"{'x' * (n % 3)}{n:02}" for n in range(20)))


def names(**filters: Any) -> list[str]:
    return [item.sample.task_id for item in select(SET, **filters)]


def test_no_filter_selects_all_in_the_order_of_ids() -> None:
    assert names() == sorted(ids(SET))
    assert names(limit=99) == names()


def test_filters_come_before_the_limit() -> None:
    level1 = [item.sample.task_id for item in SET.items if item.subset == "2023_level1"]
    assert names(subsets=["2023_level1"]) == level1
    assert names(subsets=["2023_level1"], limit=2) == level1[:2]
    both = names(subsets=["2023_level1", "2023_level3"])
    assert set(both) == set(level1) | set(names(subsets=["2023_level3"]))
    assert names(task_ids=["x01", "00", "x01"]) == ["00", "x01"]


@pytest.mark.parametrize(
    ("filters", "words"),
    [
        ({"subsets": ["2023_level4"]}, ["2023_level4", "2023_level"]),
        ({"subsets": ["level1"]}, ["'level1'", "2023_level1"]),
        ({"task_ids": ["x1"]}, ["'x1'", "nearest", "'x10'"]),
        ({"task_ids": ["00", ""]}, ["task id ''", "nearest"]),
        ({"task_ids": ["00"], "subsets": ["2023_level1"]}, ["none of the chosen subsets"]),
        ({"limit": 0}, ["limit of 0"]),
        ({"limit": -3}, ["limit of -3"]),
    ],
)
def test_unknown_names_and_empty_limits_are_refused(
    filters: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        select(SET, **filters)
    assert all(word in caught.value.message for word in words)


def test_f12_a_seed_gives_one_subset_for_ever() -> None:
    assert names(limit=5, shuffle_seed=7) == names(limit=5, shuffle_seed=7)
    assert names(limit=5, shuffle_seed=7) == ["15", "xx05", "x01", "xx08", "12"]
    assert names(limit=5, shuffle_seed=8) != names(limit=5, shuffle_seed=7)
    assert sorted(names(shuffle_seed=7)) == names()


@settings(max_examples=60, deadline=None)
@given(
    order=st.randoms(),
    limit=st.none() | st.integers(1, 25),
    seed=st.none() | st.integers(),
    levels=st.sets(st.sampled_from([f"2023_level{n}" for n in (1, 2, 3)])),
)
def test_f12_selection_is_independent_of_row_order(
    order: random.Random, limit: int | None, seed: int | None, levels: set[str]
) -> None:
    """F12."""
    mixed = made(*order.sample(ids(SET), len(SET.items)))
    chosen = select(mixed, limit=limit, shuffle_seed=seed, subsets=levels)
    assert chosen == select(SET, limit=limit, shuffle_seed=seed, subsets=levels)
    assert selection_digest(chosen) == selection_digest(order.sample(chosen, len(chosen)))
    # a narrower filter keeps the order, so that a wider selection continues a narrower one
    wider = select(SET, shuffle_seed=seed)
    assert [item for item in wider if item in chosen] == list(chosen)


def test_b10_the_note_says_how_many_of_how_many_and_which() -> None:
    part = select(SET, subsets=["2023_level1"], limit=3)
    note = selection_note(SET, part, "--subset 2023_level1 --limit 3")
    assert note.startswith(
        "3 of 20 samples selected by --subset 2023_level1 --limit 3; list sha256:"
    )
    assert selection_digest(part) in note
    assert selection_digest(part) != selection_digest(select(SET, limit=3))
    assert selection_note(SET, SET.items).startswith("20 of 20 samples selected; list sha256:")


def test_nothing_of_the_outside_is_imported(tmp_path: Path) -> None:
    write_folder(tmp_path, ROWS, files=FILES)
    code = (
        "import sys, pathlib\n"
        "from harness import dataset, report, truths\n"
        "dataset.load(pathlib.Path(sys.argv[1]))\n"
        "truths.find('sha256:' + '0' * 64)\n"
        "print(*sys.modules)"
    )
    environment = os.environ | {"HARNESS_CACHE": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"openai", "docker", "modelscope", "httpx", "pydantic", "pyarrow", "click"}
