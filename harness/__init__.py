"""Run GAIA once, record every effect of the outside world, replay it for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

# public name → module; imported when first used, so that replay loads only what it needs
_PUBLIC = {
    "TaskConfig": "api",
    "run_task": "api",
    "NativeAgentConfig": "api",
    "MCPServerConfigStdio": "mcp_config",
    "MCPServerConfigHTTP": "mcp_config",
    "replay": "api",
    "score": "api",
    "question_scorer": "scorer",
    "Store": "store",
    "World": "world",
    "Recorder": "world",
    "Replayer": "world",
    "ScriptedWorld": "world",
    "Sample": "records",
    "Settings": "records",
    "History": "records",
    "ModelRequest": "records",
    "ModelReply": "records",
    "BashRequest": "records",
    "BashReply": "records",
    "ToolRequest": "records",
    "ToolReply": "records",
    "ToolCall": "records",
    "Usage": "records",
    "ValueRequest": "records",
    "Outcome": "records",
    "Failure": "records",
    "HarnessError": "errors",
    "UsageError": "errors",
    "DataError": "errors",
    "LackError": "errors",
    "Finding": "errors",
    "DamageError": "errors",
    "DivergenceError": "errors",
    "SampleError": "errors",
    "ModelError": "errors",
    "SandboxError": "errors",
    "ToolServerError": "errors",
    "LimitError": "errors",
    "SecretError": "errors",
    "AgentError": "errors",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module 'harness' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"harness.{module}"), name)


if TYPE_CHECKING:
    from harness.api import NativeAgentConfig as NativeAgentConfig
    from harness.api import TaskConfig as TaskConfig
    from harness.api import replay as replay
    from harness.api import run_task as run_task
    from harness.api import score as score
    from harness.errors import AgentError as AgentError
    from harness.errors import DamageError as DamageError
    from harness.errors import DataError as DataError
    from harness.errors import DivergenceError as DivergenceError
    from harness.errors import Finding as Finding
    from harness.errors import HarnessError as HarnessError
    from harness.errors import LackError as LackError
    from harness.errors import LimitError as LimitError
    from harness.errors import ModelError as ModelError
    from harness.errors import SampleError as SampleError
    from harness.errors import SandboxError as SandboxError
    from harness.errors import SecretError as SecretError
    from harness.errors import ToolServerError as ToolServerError
    from harness.errors import UsageError as UsageError
    from harness.mcp_config import MCPServerConfigHTTP as MCPServerConfigHTTP
    from harness.mcp_config import MCPServerConfigStdio as MCPServerConfigStdio
    from harness.records import BashReply as BashReply
    from harness.records import BashRequest as BashRequest
    from harness.records import Failure as Failure
    from harness.records import History as History
    from harness.records import ModelReply as ModelReply
    from harness.records import ModelRequest as ModelRequest
    from harness.records import Outcome as Outcome
    from harness.records import Sample as Sample
    from harness.records import Settings as Settings
    from harness.records import ToolCall as ToolCall
    from harness.records import ToolReply as ToolReply
    from harness.records import ToolRequest as ToolRequest
    from harness.records import Usage as Usage
    from harness.records import ValueRequest as ValueRequest
    from harness.scorer import question_scorer as question_scorer
    from harness.store import Store as Store
    from harness.world import Recorder as Recorder
    from harness.world import Replayer as Replayer
    from harness.world import ScriptedWorld as ScriptedWorld
    from harness.world import World as World
