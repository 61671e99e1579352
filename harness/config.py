"""Options → what a recording needs. The command line and `TaskConfig` both end up here."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from harness.answers import MAX_DEPTH
from harness.attempt import BUILT_IN, load_callable, source_digest
from harness.dataset import MINI, Dataset, load, select, selection_digest
from harness.errors import LackError, UsageError
from harness.mcp_config import MCPServerConfig, secrets, to_settings
from harness.records import Settings
from harness.redact import SHORTEST, Redactor
from harness.runfile import RunFile, RunSettings, Selection
from harness.store import check_run_name

if TYPE_CHECKING:
    from harness.opening import RecordConfig

LONGEST = 30 * 86_400.0
"""Seconds that anything may be told to take: a month, for more is a slip of the keyboard."""
MOST_EPOCHS = 10_000

DEFAULT_DATASET_ID = "gaia-benchmark/GAIA"
HUBS = ("modelscope", "huggingface")

# generation options that are sent with every model request, and what they may be
_PARAMS: dict[str, tuple[type, ...]] = {
    "temperature": (int, float),
    "top_p": (int, float),
    "max_tokens": (int,),
    "seed": (int,),
    "parallel_tool_calls": (bool,),
    "extra_body": (dict,),
}
# and those that only say how to ask: no reply depends on them
_TRANSPORT: dict[str, tuple[type, ...]] = {
    "timeout": (int, float),
    "retries": (int,),
    "retry_interval": (int, float),
}


class RecordOptions(msgspec.Struct, kw_only=True):
    """The options of `harness record`, with their defaults."""

    run: str
    model: str
    dataset: str = "modelscope"
    dataset_id: str | None = None
    revision: str | None = None
    split: str = "validation"
    subsets: tuple[str, ...] = ()
    task_ids: tuple[str, ...] = ()
    limit: int | None = None
    shuffle_seed: int | None = None
    epochs: int = 1
    api_url: str | None = None
    api_key_env: str = "OPENAI_API_KEY"
    api_key: str | None = None
    generation: dict[str, Any] = {}
    max_steps: int = 50
    command_timeout: float = 180.0
    max_output_chars: int = 16_000
    context_limit: int | None = None
    prompt_template: str | None = None
    """The template's text."""
    send_reasoning: bool = False
    agent: str = BUILT_IN
    sample_seconds: float | None = None
    sample_tokens: int | None = None
    run_tokens: int | None = None
    sandbox: dict[str, Any] = {}
    mcp: tuple[MCPServerConfig, ...] = ()
    eval_batch_size: int = 1
    ignore_errors: bool = False
    allow_missing_files: bool = False
    wire: bool = True
    retry_errors: bool = False
    overwrite: bool = False
    on_drift: str = "hard"


def parse_generation(pairs: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts; values are JSON, and plain text where they are not."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"-g {pair!r} is not of the form KEY=VALUE")
        try:
            found[key] = json.loads(text)
        except ValueError:
            lowered = text.lower()
            found[key] = lowered == "true" if lowered in ("true", "false") else text
    return found


def split_generation(
    options: Mapping[str, Any],
) -> tuple[dict[str, Any], dict[str, Any], bool]:
    """Generation options as request parameters, transport, and whether to stream."""
    params: dict[str, Any] = {}
    transport: dict[str, Any] = {}
    stream = False
    for key, value in options.items():
        if key == "stream":
            _expect(key, value, (bool,))
            stream = value
        elif key in _PARAMS:
            _expect(key, value, _PARAMS[key])
            params[key] = value
        elif key in _TRANSPORT:
            _expect(key, value, _TRANSPORT[key])
            if not 0 <= value <= LONGEST or (key == "timeout" and value == 0):
                raise UsageError(f"generation option {key!r} must not be {value!r:.100}")
            transport[key] = value
        else:
            known = [*_PARAMS, *_TRANSPORT, "stream"]
            raise UsageError(
                f"unknown generation option {key!r}{nearest(key, known)}; what only one provider "
                f"knows goes into extra_body: -g 'extra_body={{\"{key}\": …}}'"
            )
    return params, transport, stream


def _expect(key: str, value: Any, types: tuple[type, ...]) -> None:
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        names = " or ".join(t.__name__ for t in types)
        raise UsageError(f"generation option {key!r} must be {names}, not {value!r:.100}")
    _expect_json(key, value)


def _expect_json(key: str, value: Any, depth: int = MAX_DEPTH) -> None:
    """UsageError for what no request can carry: NaN, infinities, what is no JSON, deep nesting."""
    if value is None or isinstance(value, str | bool):
        return
    if isinstance(value, int | float) and is_number(value):
        return
    if isinstance(value, list | tuple | dict) and depth:
        is_object = isinstance(value, dict)
        if not is_object or all(isinstance(name, str) for name in value):
            for item in value.values() if isinstance(value, dict) else value:
                _expect_json(key, item, depth - 1)
            return
    raise UsageError(f"generation option {key!r} holds what is no JSON, or nested too deeply")


def is_number(value: float) -> bool:
    """Whether it is a number that a record can hold: no NaN, nothing beyond a float's range."""
    try:
        return isfinite(value)
    except OverflowError:
        return False


CALLED_OTHERWISE = {
    "repeats": "epochs",
    "use_cache": "run_name",
    "seed": "generation_config",
    "api_base": "api_url",
    "base_url": "api_url",
    "output_dir": "work_dir",
}
"""What EvalScope and other tools call things that have another name here."""


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)`, or nothing when no name is near."""
    import difflib  # only a wrong name needs it

    known = list(known)
    if (other := CALLED_OTHERWISE.get(name)) in known:
        return f" (it is called {other!r} here)"
    found = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {found[0]!r}?)" if found else ""


def load_dataset(
    source: str,
    *,
    dataset_id: str | None = None,
    revision: str | None = None,
    split: str = "validation",
    allow_missing_files: bool = False,
    progress: Callable[[str], None] = lambda line: None,
) -> Dataset:
    """The data set that `--dataset` names: `mini`, a hub, or a folder in GAIA's layout."""
    more: dict[str, Any] = {"split": split, "allow_missing_files": allow_missing_files}
    if source == "mini":
        return load(MINI, id="mini", **more)
    if source in HUBS:
        from harness.live.hub import fetch

        name = dataset_id or DEFAULT_DATASET_ID
        fetched = fetch(source, name, revision=revision, split=split, progress=progress)  # type: ignore[arg-type]
        return load(fetched.root, id=fetched.id, revision=fetched.revision, **more)
    folder = Path(source)
    if not folder.is_dir():
        raise UsageError(
            f"--dataset {source!r} is no folder; give mini, modelscope, huggingface or a folder "
            "in GAIA's layout"
        )
    return load(folder, id=dataset_id, revision=revision, **more)


def dataset_of(run: RunFile, *, progress: Callable[[str], None] = lambda line: None) -> Dataset:
    """The data set that a run was made over; UsageError when only the user can say where it is."""
    ref = run.dataset
    if ref.source not in ("mini", *HUBS):
        raise UsageError(
            f"run {run.name!r} was made over a folder: going on live needs its questions",
            hint="--dataset DIR",
        )
    dataset = load_dataset(
        ref.source,
        dataset_id=ref.id if ref.source != "mini" else None,
        revision=ref.revision,
        split=ref.split,
        progress=progress,
    )
    if dataset.digest != ref.digest:
        raise UsageError(f"{ref.id} is no longer what run {run.name!r} was made over")
    return dataset


def record_config(
    options: RecordOptions,
    *,
    progress: Callable[[str], None] = lambda line: None,
    ask: bool = True,
) -> RecordConfig:
    """Check the options, read the data, name what is missing. Asks nothing live but a hub.

    `ask`: whether the endpoint is going to be asked, so that an address or a key is needed.
    """
    from harness.opening import RecordConfig  # replay and score come here for `--dataset` alone

    check_run_name(options.run)
    check_options(options)
    params, transport, stream = split_generation(options.generation)
    agent = load_callable(options.agent, "the agent")
    api_url, api_key = options.api_url, options.api_key
    if ask:
        api_url, api_key = endpoint(api_url, options.api_key_env, api_key)
    hidden = (*((api_key,) if api_key else ()), *mcp_secrets(options.mcp))
    settings = RunSettings(
        loop=Settings(
            model=options.model,
            params=params,
            max_steps=options.max_steps,
            command_timeout=float(options.command_timeout),
            max_output_chars=options.max_output_chars,
            context_limit=options.context_limit,
            prompt_template=options.prompt_template,
            send_reasoning=options.send_reasoning,
        ),
        agent=options.agent,
        agent_source=source_digest(agent),
        stream=stream,
        sandbox=_sandbox(options.sandbox),
        mcp=[to_settings(server) for server in options.mcp],
        sample_seconds=options.sample_seconds,
        sample_tokens=options.sample_tokens,
        run_tokens=options.run_tokens,
        transport={
            "api_url": Redactor(hidden).text(public_url(api_url) or "") or None,
            "eval_batch_size": options.eval_batch_size,
            **transport,
        },
    )
    dataset = load_dataset(
        options.dataset,
        dataset_id=options.dataset_id,
        revision=options.revision,
        split=options.split,
        allow_missing_files=options.allow_missing_files,
        progress=progress,
    )
    items = select(
        dataset,
        subsets=options.subsets,
        task_ids=options.task_ids,
        limit=options.limit,
        shuffle_seed=options.shuffle_seed,
    )
    config = RecordConfig(
        run=options.run,
        settings=settings,
        dataset=dataset,
        source=options.dataset if options.dataset in ("mini", *HUBS) else "folder",
        items=items,
        selection=Selection(
            subsets=list(options.subsets),
            task_ids=list(options.task_ids),
            limit=options.limit,
            shuffle_seed=options.shuffle_seed,
            epochs=options.epochs,
            selected=len(items),
            of=len(dataset.items),
            digest=selection_digest(items),
        ),
        api_url=api_url,
        api_key=api_key,
        secrets=hidden,
        mcp=options.mcp,
        keep_wire=options.wire,
        eval_batch_size=options.eval_batch_size,
        retry_errors=options.retry_errors,
        overwrite=options.overwrite,
        on_drift=options.on_drift,
    )
    refuse_secrets(config)
    _warn_of_short(config.secrets, progress)
    return config


def refuse_secrets(config: RecordConfig) -> None:
    """UsageError where what is stored as it was given holds one of the run's secrets.

    Replies are cleaned on their way in; these are the user's own words, and changing them would
    change the run. The addresses of endpoints are the exception: nothing depends on them.
    """
    redactor = Redactor(config.secrets)
    settings = config.settings
    given: list[tuple[str, Any]] = [
        ("--run", config.run),
        ("--model", settings.loop.model),
        ("-g", settings.loop.params),
        ("--prompt-template", settings.loop.prompt_template),
        ("--agent", settings.agent),
        ("the sandbox's settings", settings.sandbox),
        ("the MCP servers' settings", settings.mcp),
    ]
    items = config.items
    if config.dataset is not None:
        given.append(("--dataset", [config.dataset.id, config.dataset.revision]))
        items = items or config.dataset.items
    given += [("the data set, in a sample", msgspec.to_builtins(item.sample)) for item in items]
    for name, value in given:
        if place := redactor.find(value, name):
            raise UsageError(
                f"{place} holds a secret of this run (the API key, or a value of an MCP server's "
                "configuration), and would be stored",
                hint="take it out there; keys go into the variable that --api-key-env names",
            )


def _warn_of_short(secrets: Iterable[str], progress: Callable[[str], None]) -> None:
    count = sum(len(secret) < SHORTEST for secret in secrets)
    if count:
        progress(
            f"{count} of the secrets is shorter than {SHORTEST} characters: that cannot be told "
            "from ordinary text, and is not looked for in replies"
        )


def _sandbox(given: dict[str, Any]) -> dict[str, Any]:
    """The sandbox's settings, every default spelt out: a later version must not move them."""
    from harness.live.sandbox import SandboxConfig

    try:
        found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(given, SandboxConfig))
    except msgspec.ValidationError as error:
        raise UsageError(f"sandbox: {error}") from None
    for name in ("cpus", "pids_limit"):
        value = found[name]
        if value is not None and not (value > 0 and is_number(value)):
            raise UsageError(f"sandbox: {name} must be a positive number")
    return found


def mcp_secrets(servers: Iterable[MCPServerConfig]) -> list[str]:
    """The values that must not reach the store."""
    return [secret for server in servers for secret in secrets(server)]


def endpoint(
    api_url: str | None, api_key_env: str, api_key: str | None = None
) -> tuple[str | None, str | None]:
    """Address and key, from what is given or from the environment; LackError without either."""
    api_url = api_url or os.environ.get("OPENAI_BASE_URL") or None
    api_key = api_key or os.environ.get(api_key_env) or None
    if api_url is None and api_key is None:
        raise LackError(
            f"no API key: the variable {api_key_env} is not set",
            hint=f"export {api_key_env}=…, or name another endpoint with --api-url",
        )
    return api_url, api_key


def public_url(api_url: str | None) -> str | None:
    """The address as it may be stored: without user, password, query and fragment."""
    if api_url is None:
        return None
    try:
        parts = urlsplit(api_url)
    except ValueError:
        raise UsageError(
            "the address of the model endpoint is no http(s) URL",
            hint="give --api-url like http://127.0.0.1:8000/v1",
        ) from None
    host = parts.netloc.rpartition("@")[2]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """How a fork's settings differ from those of the run that it comes from."""

    loop: dict[str, Any] = {}
    generation: dict[str, Any] = {}
    agent: str | None = None
    sandbox: dict[str, Any] = {}
    limits: dict[str, Any] = {}
    eval_batch_size: int | None = None
    """None: the run's own."""


def changed_settings(old: RunSettings, changes: Changes) -> RunSettings:
    """The settings of a fork: the old ones, with the changes, for the code as it is now."""
    params, transport, stream = split_generation(changes.generation)
    spec = changes.agent or old.agent
    loop = {**msgspec.to_builtins(old.loop), **changes.loop}
    loop["params"] = {**old.loop.params, **params}
    try:
        settings = msgspec.convert(loop, Settings)
    except msgspec.ValidationError as error:
        raise UsageError(f"loop settings: {error}") from None
    return msgspec.structs.replace(
        old,
        loop=settings,
        agent=spec,
        agent_source=source_digest(load_callable(spec, "the agent")),
        stream=stream if "stream" in changes.generation else old.stream,
        sandbox=_sandbox({**old.sandbox, **changes.sandbox}),
        transport={
            **old.transport,
            **transport,
            "eval_batch_size": changes.eval_batch_size or old.transport.get("eval_batch_size") or 1,
        },
        **changes.limits,
    )


CAPTURED = 1 << 20
"""Bytes of each stream that a sandbox keeps of one command, head and tail together."""


def check_options(options: RecordOptions) -> None:
    """UsageError for a value that nothing can be done with; reads nothing."""
    if not options.model.strip():
        raise UsageError("--model must not be empty")
    least_one = ("max_steps", "eval_batch_size", "epochs", "max_output_chars", "context_limit")
    for name in (*least_one, "sample_tokens", "run_tokens"):
        value = getattr(options, name)
        if value is not None and not (value >= 1 and is_number(value)):
            raise UsageError(f"--{name.replace('_', '-')} must be at least 1")
    if options.epochs > MOST_EPOCHS:
        raise UsageError(f"--epochs must be at most {MOST_EPOCHS}")
    for name in ("command_timeout", "sample_seconds"):
        value = getattr(options, name)
        if value is not None and not 0 < value <= LONGEST:
            raise UsageError(
                f"--{name.replace('_', '-')} must be a positive number of seconds, "
                f"at most {LONGEST:.0f}"
            )
    if options.shuffle_seed is not None and not is_number(options.shuffle_seed):
        raise UsageError("--shuffle-seed is too large a number")
    split_generation(options.generation)
    _sandbox(options.sandbox)
    # a character has up to four bytes, and head and tail are kept in halves
    if options.max_output_chars * 4 > CAPTURED:
        raise UsageError(
            f"--max-output-chars {options.max_output_chars} is more than the sandbox keeps of an "
            f"output ({CAPTURED} bytes); at most {CAPTURED // 4}"
        )
    template = options.prompt_template
    if template is not None and "{question}" not in template:
        raise UsageError("the prompt template lacks {question}")
