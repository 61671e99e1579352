"""pytest plugin: recorded runs as tests. No container, no network, no key.

    pytest --harness-run RUN           each sample and epoch is a test item, RUN::TASK_ID[EPOCH]
    @pytest.mark.harness_run("RUN")    a test of your own, once per sample: fixture harness_sample

An item fails on a divergence, on damage, and on a changed answer or verdict. Every pytest of an
environment that holds harness loads this module, so it imports nothing: the rest is in
`harness.testing`, and loaded when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from harness.testing.sample import HarnessSample

MARKER = (
    'harness_run(run, ..., store=DIR, agent="MODULE:NAME", dataset="mini|DIR", task_ids=(), '
    "allow_recorded=False): the recorded runs that the fixture harness_sample is filled from"
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """The options. A marker's own arguments win over them."""
    group = parser.getgroup("harness", "recorded runs (gaia-harness)")
    group.addoption(
        "--harness-run",
        action="append",
        metavar="RUN",
        help="Replay each sample of this recorded run as a test. Repeatable. On a command line "
        "without files or folders, nothing else is tested.",
    )
    group.addoption(
        "--harness-store", metavar="DIR", help="Where the runs are. [HARNESS_STORE, else cassettes]"
    )
    group.addoption(
        "--harness-agent", metavar="MODULE:NAME", help="The loop to replay. [the recorded one]"
    )
    group.addoption(
        "--harness-dataset",
        metavar="mini|DIR",
        help="Where the truths are. [the packaged questions, then the user's cache]",
    )
    group.addoption(
        "--harness-allow-recorded",
        action="store_true",
        help="Let samples pass whose verdict can only be taken from the record.",
    )


def pytest_configure(config: pytest.Config) -> None:
    """The hooks for runs come in only if there is a run."""
    config.addinivalue_line("markers", MARKER)
    if config.option.harness_run:
        from harness.testing.items import RunHooks

        config.pluginmanager.register(RunHooks(config), "harness-runs")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `harness_sample` is called once per sample and epoch."""
    if "harness_sample" in metafunc.fixturenames:
        from harness.testing.sample import parametrize

        parametrize(metafunc, MARKER)


@pytest.fixture
def harness_sample(request: pytest.FixtureRequest) -> HarnessSample:
    """A sample of a recorded run, as `@pytest.mark.harness_run("RUN")` names it."""
    from harness.testing.sample import HarnessSample

    return HarnessSample(*request.param)
