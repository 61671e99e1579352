"""The committed runs: fixtures of the first version of every format, and README's first command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from harness.bundling import read_bundle
from harness.cassette import BashEffect, read_cassette
from harness.cli import cli
from harness.replaying import replay_run
from harness.runfile import read_run
from harness.store import Store

ROOT = Path(__file__).parent.parent
CASSETTES = ROOT / "cassettes"
BUNDLE = ROOT / "tests" / "data" / "demo-v1.bundle"


@pytest.mark.parametrize("run", ["demo", "demo-smollm2"])
def test_the_committed_runs_replay_identically(run: str) -> None:
    """E11: cassettes of format 1, whatever is installed."""
    report, findings = replay_run(Store(CASSETTES), run)
    assert not findings
    assert len(report.samples) == 26
    for sample in report.samples:
        assert sample.identical is True
        assert sample.verdict_source == "scored"


def test_the_first_command_of_the_readme(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere.sock")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, ["replay"])
    assert result.exit_code == 0, result.output
    assert result.stdout.count("identical: 26 of 26") == 2
    result = CliRunner().invoke(cli, ["replay", "demo", "--json"])
    assert json.loads(result.stdout)["metrics"]["right"] == 15
    assert CliRunner().invoke(cli, ["verify"]).exit_code == 0


def test_the_demo_shows_what_it_should() -> None:
    """Commands, and every way in which a sample of the scripted policy ends."""
    store = Store(CASSETTES)
    run = read_run(store, "demo")
    bash = []
    for entry in run.samples:
        assert entry.cassette is not None
        effects = read_cassette(store, entry.cassette, entry.task_id).effects
        bash.append(sum(isinstance(effect, BashEffect) for effect in effects))
    assert sum(bash) >= 50
    assert sorted(bash)[len(bash) // 2] >= 4
    verdicts = {entry.verdict for entry in run.samples}
    assert verdicts == {"right", "wrong", "no_answer", "context_exceeded", "refused"}
    assert run.settings.loop.model == "scripted-policy"


def test_what_another_scorer_would_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """One answer was given in capitals; only case folding knows that SS may be a sharp s."""
    monkeypatch.chdir(ROOT)
    against = ("--against", "tests.bad_scorers:casefold")
    result = CliRunner().invoke(cli, ["score", "demo", *against, "--show-truths"])
    assert result.exit_code == 1, result.output
    flips = [line for line in result.stdout.splitlines() if " → " in line and "level" in line]
    assert [line.split()[0] for line in flips] == ["62aaae88-5bf0-5def-81a1-7694f9df8ff6"]
    assert "wrong → right  answer 'GROSSRÖHRSDORF', truth 'Großröhrsdorf'" in flips[0]
    assert "1 verdict flips:" in result.stdout
    assert CliRunner().invoke(cli, ["score", "demo-smollm2", *against]).exit_code == 0


def test_why_the_wrong_answers_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    result = CliRunner().invoke(cli, ["score", "demo", "--explain", "--json"])
    assert result.exit_code == 0, result.output
    explained = json.loads(result.stdout)["explained"]
    won = {entry["class"] for entry in explained if entry["winnable"]}
    assert won == {"unit", "letter_case", "punctuation"}
    assert len(explained) == 9
    told = CliRunner().invoke(cli, ["score", "demo", "--explain"]).stdout
    assert "3 of these 9 have the right value in a wrong form" in told


def test_nothing_of_the_recording_machine_is_committed() -> None:
    for path in CASSETTES.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            for trace in (b"/home/", b"sk-"):
                assert trace not in content, path


def test_a_bundle_of_the_first_version_is_read(tmp_path: Path) -> None:
    store = Store(tmp_path / "store")
    assert read_bundle(store, str(BUNDLE))[0] == "demo"
    report, findings = replay_run(store, "demo")
    assert not findings
    assert all(sample.identical for sample in report.samples)
