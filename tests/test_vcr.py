"""vcrpy's cassettes: written by `harness export`, kept by the persister. No socket is opened."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import names
from harness.collecting import collect, unused
from harness.dataset import Dataset
from harness.errors import DamageError, UsageError
from harness.interop.vcr import persister
from harness.interop.vcr_export import address, export
from harness.live import wire
from harness.records import ModelReply
from harness.runfile import read_run, write_run
from harness.store import PREFIX, Store, object_path
from harness.verifying import verify_store
from tests.commands import Commands
from tests.scripted import Backend, config, dataset, take
from tests.test_recording import failing
from tests.wired import WiredBackend, change_evidence, with_fields

vcr = pytest.importorskip("vcr")
openai = pytest.importorskip("openai")

ROWS = [("a", 1, "a"), ("b", 2, "x")]
ODD = [
    "../../etc/passwd",
    "/absolute",
    "ü/\u202e\u0000",
    "x" * 300,
    "x" * 299 + "y",
    ".",
    "CON",
    " x",
]


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return dataset(tmp_path / "data", ROWS)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    dataset(tmp_path / "data", ROWS)
    return Commands(tmp_path, monkeypatch)


def plain(path: Path, **options: Any) -> Any:
    """The context in which plain vcrpy plays a file."""
    return vcr.VCR(record_mode="none", **options).use_cassette(str(path))


def asked(client: Any, body: str) -> Any:
    return client.post("/chat/completions", body=json.loads(body), cast_to=object)


# ------------------------------------------------------------------------------------------ export


@pytest.mark.parametrize("backend", [WiredBackend(), Backend()], ids=["wire", "synthesised"])
def test_a_file_per_sample_and_epoch_that_plain_vcrpy_replays(
    store: Store, data: Dataset, tmp_path: Path, backend: Backend
) -> None:
    take(store, config(data, epochs=2), backend)
    run = read_run(store, "r")
    done = export(store, run, str(tmp_path / "out"))
    made = 0 if isinstance(backend, WiredBackend) else 16
    assert (done.files, done.interactions, done.synthesised, done.missing) == (4, 16, made, 0)
    found = sorted((tmp_path / "out").iterdir())
    assert [path.name for path in found] == ["a@1.yaml", "a@2.yaml", "b@1.yaml", "b@2.yaml"]
    client = openai.OpenAI(
        base_url=address(run).removesuffix("/chat/completions"), api_key="none", max_retries=0
    )
    for path in found:
        stored = yaml.safe_load(path.read_text())
        assert stored["version"] == 1
        said = []
        with plain(path, match_on=["method", "uri", "body"]) as cassette:
            for interaction in stored["interactions"]:
                assert interaction["request"]["headers"] == {
                    "accept": ["application/json"],
                    "content-type": ["application/json"],
                }
                reply = asked(client, interaction["request"]["body"])
                said.append(reply["choices"][0]["message"]["content"])
            assert cassette.all_played
        assert said == ["look 0", "look 1", "look 2", "done"]


def test_bytes_come_back_as_they_were(store: Store, data: Dataset, tmp_path: Path) -> None:
    """YAML has its own ideas of line ends, spaces and control characters."""
    odd = "\ta\r\nb\rc\x85\u2028\ufeff\x00\x1b’🐈 : - # '\" \n "
    take(
        store, config(data), WiredBackend(lambda *_: ModelReply(content=odd, finish_reason="stop"))
    )
    change_evidence(store, "r", "b", 1, with_fields(text=None, base64="/wCA", status=400))
    run = read_run(store, "r")
    export(store, run, str(tmp_path / "out"))
    client = openai.OpenAI(
        base_url=address(run).removesuffix("/chat/completions"), api_key="none", max_retries=0
    )
    sent = yaml.safe_load((tmp_path / "out" / "a@1.yaml").read_text())["interactions"][0]
    with plain(tmp_path / "out" / "a@1.yaml"):
        reply = asked(client, sent["request"]["body"])
    assert reply["choices"][0]["message"]["content"] == odd
    with plain(tmp_path / "out" / "b@1.yaml"), pytest.raises(openai.BadRequestError) as caught:
        asked(client, sent["request"]["body"])
    assert caught.value.response.content == b"\xff\x00\x80"


def test_no_name_of_a_sample_leads_out_of_the_folder(store: Store, tmp_path: Path) -> None:
    take(store, config(dataset(tmp_path / "data", [(id, 1, "x") for id in ODD])), Backend())
    done = export(store, read_run(store, "r"), str(tmp_path / "deep" / "out"))
    assert done.files == len(ODD)
    found = [path for path in (tmp_path / "deep").rglob("*") if path.is_file()]
    assert len(found) == len(ODD)
    assert {path.parent for path in found} == {tmp_path / "deep" / "out"}
    assert all(path.name.isascii() and len(path.name) < 120 for path in found)


def test_what_did_not_give_a_reply_is_left_out_and_said(
    store: Store, data: Dataset, tmp_path: Path
) -> None:
    take(store, config(data), WiredBackend(failing))
    run = read_run(store, "r")
    run.samples[1].cassette, run.samples[1].status = None, "missing"
    write_run(store, run)
    done = export(store, run, str(tmp_path / "out"))
    assert (done.files, done.missing) == (1, 1)
    assert list(done.notes()) == ["1 samples are not recorded and have no file"]


def test_evidence_of_another_request_is_not_exported(
    store: Store, data: Dataset, tmp_path: Path
) -> None:
    take(store, config(data), WiredBackend())
    change_evidence(store, "r", "b", 2, with_fields(request_sha256="0" * 64))
    with pytest.raises(DamageError, match="step 2 of the cassette of sample 'b', epoch 1"):
        export(store, read_run(store, "r"), str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".out*"))


def test_the_export_command(here: Commands) -> None:
    here.record(backend=WiredBackend())
    (here.folder / "out").mkdir()
    (here.folder / "out" / "mine").write_text("kept")
    done = here("export", "r", "--format", "vcr", "-o", "out")
    assert done.stdout == ""
    assert "out: 2 cassettes, 8 interactions" in done.stderr
    assert "synthesised" not in done.stderr
    assert sorted(path.name for path in (here.folder / "out").iterdir()) == [
        "a@1.yaml", "b@1.yaml", "mine",
    ]  # fmt: skip
    here.record(run="bare")
    done = here("export", "bare", "--format", "vcr", "-o", "out")
    assert "note: 8 of 8 responses are synthesised from the recorded replies" in done.stderr
    for place in ("-", "out/mine"):
        assert (
            "is no folder" in here("export", "r", "--format", "vcr", "-o", place, status=2).stderr
        )


@pytest.mark.parametrize("url", ["[secret removed]", "ftp://x", "http://[", "", None])
def test_an_address_that_is_none_becomes_the_usual_one(
    store: Store, data: Dataset, url: str | None
) -> None:
    take(store, config(data), Backend())
    run = read_run(store, "r")
    run.settings.transport["api_url"] = url
    assert address(run) == "https://api.openai.com/v1/chat/completions"


# --------------------------------------------------------------------------------------- persister


Ask = Callable[[str], str]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Asks an endpoint that says what it was asked, and how often; vcrpy may stand in between."""
    if int(version("vcrpy").partition(".")[0]) < 9:
        pytest.skip("this vcrpy does not stand before a transport without sockets")
    lib = wire.http_library(openai.DefaultHttpxClient)
    asked: list[bytes] = []

    def answer(request: Any) -> Any:
        asked.append(request.read())
        message = {"role": "assistant", "content": f"{len(asked)} asked"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        return lib.Response(200, json={"id": "x", "choices": [choice]})

    client = openai.OpenAI(
        base_url="http://model.test/v1",
        api_key="sk-canary-0123456789abcdef",
        http_client=openai.DefaultHttpxClient(transport=lib.MockTransport(answer)),
    )

    def said(text: str) -> str:
        messages = [{"role": "user", "content": text}]
        reply = client.chat.completions.create(model="m", messages=messages)
        return str(reply.choices[0].message.content)

    yield said
    client.close()


def player(store: Store, root: Path, mode: str = "once", **options: Any) -> Any:
    found = vcr.VCR(record_mode=mode, filter_headers=["authorization"], **options)
    found.register_persister(persister(store, root))
    return found


@pytest.mark.parametrize("serializer", ["yaml", "json"])
def test_what_vcrpy_records_it_plays_again(
    store: Store, tmp_path: Path, ask: Ask, serializer: str
) -> None:
    with player(store, tmp_path, serializer=serializer).use_cassette("deep/one.yaml"):
        assert ask("hello") == "1 asked"
    with player(store, tmp_path, "none", serializer=serializer).use_cassette("deep/one.yaml"):
        assert ask("hello") == "1 asked"
    with (
        player(store, tmp_path, "none").use_cassette("deep/two.yaml"),
        pytest.raises(vcr.errors.CannotOverwriteExistingCassetteException),
    ):
        ask("hello")
    assert persister(store, tmp_path).paths() == ["deep/one.yaml"]
    everything = b"".join(p.read_bytes() for p in tmp_path.rglob("*") if p.is_file())
    assert b"sk-canary" not in everything
    assert str(tmp_path).encode() not in everything
    assert not (tmp_path / "deep").exists()


def test_a_cassette_is_extended_and_the_old_one_is_garbage(
    store: Store, tmp_path: Path, ask: Ask
) -> None:
    with player(store, tmp_path).use_cassette(tmp_path / "one.yaml"):
        ask("hello")
    with player(store, tmp_path, "new_episodes", match_on=["body"]).use_cassette("one.yaml"):
        assert ask("hello") == "1 asked"
        assert ask("again") == "2 asked"
    assert len(store.objects()) == 2
    assert len(collect(store)[0]) == 1
    with player(store, tmp_path, "none", match_on=["body"]).use_cassette("./x/../one.yaml"):
        assert [ask("again"), ask("hello")] == ["2 asked", "1 asked"]


def test_gc_keeps_and_verify_checks_what_has_a_name(
    store: Store, tmp_path: Path, ask: Ask, data: Dataset
) -> None:
    take(store, config(data), Backend())
    for name in ("one.yaml", "two.yaml"):
        with player(store, tmp_path).use_cassette(name):
            ask("hello")
    cassettes = {found.object for found in names.everything(store)}
    assert unused(store) == []
    assert collect(store) == ([], 0)
    lines = list(verify_store(store))
    assert ("2 vcr cassettes are as they were stored", False) in lines
    assert not any(bad or "used by no run" in line for line, bad in lines)
    for name in ("one.yaml", "two.yaml"):
        persister(store, tmp_path).remove(name)
    assert persister(store, tmp_path).paths() == []
    assert set(collect(store)[0]) == cassettes
    assert len(store.objects()) == 2


def test_the_same_bytes_are_kept_once(store: Store, tmp_path: Path) -> None:
    for name in ("a", "b"):
        names.keep(store, "vcr", name, b"interactions: []\n")
    assert len(store.objects()) == 1
    assert len(names.paths(store)) == 2


def test_damage_is_an_error_and_never_a_miss(store: Store, tmp_path: Path, ask: Ask) -> None:
    with player(store, tmp_path).use_cassette("one.yaml"):
        ask("hello")
    (found,) = names.everything(store)
    path = tmp_path / "cassettes" / object_path(found.object)
    good = path.read_bytes()
    path.write_bytes(good.replace(b"POST", b"PAST"))
    with (
        pytest.raises(DamageError, match=r"the vcr cassette 'one\.yaml' is damaged: .*SHA-256"),
        player(store, tmp_path).use_cassette("one.yaml"),
    ):
        ask("hello")
    assert any("'one.yaml' is damaged" in line for line, bad in verify_store(store) if bad)
    path.unlink()
    with (
        pytest.raises(DamageError, match=r"the vcr cassette 'one\.yaml' is missing"),
        player(store, tmp_path, "all").use_cassette("one.yaml"),
    ):
        ask("hello")
    path.write_bytes(good)
    (name,) = names.paths(store)
    for bad_bytes in (b"", b"{}", b"[1]", good, store.files.read(name).replace(b"one", b"two")):
        store.files.write(name, bad_bytes)
        with pytest.raises(DamageError, match="is damaged"):
            persister(store, tmp_path).load_cassette("one.yaml", None)
        with pytest.raises(DamageError):  # what it names is not known: nothing may go
            collect(store)
        assert any(bad for _, bad in verify_store(store))
    assert store.has(found.object)


def test_a_name_of_a_later_version_is_refused(store: Store) -> None:
    names.keep(store, "vcr", "x", b"y")
    (path,) = names.paths(store)
    store.files.write(path, store.files.read(path).replace(b'"version": 1', b'"version": 2'))
    with pytest.raises(DamageError, match="no name of version 1"):
        names.find(store, "vcr", "x")


def test_nothing_is_stored_while_gc_runs(store: Store) -> None:
    with store.exclusive(), pytest.raises(UsageError, match="locked"):
        names.keep(store, "vcr", "x", b"y")
    assert names.find(store, "vcr", "x") is None
    assert store.objects() == []


@pytest.mark.parametrize("name", [*ODD, "\udcff", "a\nb"])
def test_any_path_is_a_name(store: Store, name: str) -> None:
    names.keep(store, "vcr", name, name.encode("utf-8", "surrogatepass"))
    assert names.find(store, "vcr", name) == name.encode("utf-8", "surrogatepass")
    (path,) = names.paths(store)
    assert path.startswith("names/vcr/")
    assert names.read(store, path).name == name


def test_a_store_is_made_with_the_first_cassette(tmp_path: Path, ask: Ask) -> None:
    kept = persister(tmp_path / "new", tmp_path)
    assert kept.paths() == []
    my_vcr = vcr.VCR()
    my_vcr.register_persister(kept)
    with my_vcr.use_cassette("one.yaml"):
        ask("hello")
    assert Store(tmp_path / "new").runs() == []
    assert [found.object[:7] for found in names.everything(Store(tmp_path / "new"))] == [PREFIX]
