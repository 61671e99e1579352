"""The floor: what any replay has to do that believes nothing, written as tightly as it can be.

Read each cassette, verify it, decode its lines into types, digest each chat message in canonical
JSON, chain the digests into the keys of the requests, digest each reply. No loop, no seam, no
history, no checks, no score. A replay that cost as much would do nothing else.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from harness.cassette import AnyLine, BashEffect, MessageLine, ModelEffect, Stored

_decode = msgspec.json.Decoder(AnyLine).decode_lines
_encode = msgspec.json.Encoder().encode
_in_order = msgspec.json.Encoder(order="sorted").encode


def floor(paths: Sequence[tuple[str, str]]) -> int:
    """The work over cassettes without parents: (path, hex SHA-256) each. Returns the effects."""
    effects = 0
    for path, name in paths:
        descriptor = os.open(path, os.O_RDONLY)
        data = os.read(descriptor, os.fstat(descriptor).st_size)
        os.close(descriptor)
        if sha256(data).hexdigest() != name:
            raise AssertionError(path)
        chain = b""
        key = ""
        lines = _decode(data)
        for line in lines:
            if isinstance(line, ModelEffect):
                assert line.reply is not None
                key = sha256(b'{"messages":"%b","model":""}' % chain.hex().encode()).hexdigest()
                sha256(_in_order(line.reply)).digest()
                calls = [
                    {
                        "function": {"arguments": call.arguments, "name": call.name},
                        "id": call.id,
                        "type": "function",
                    }
                    for call in line.reply.tool_calls
                ]
                message = {
                    "content": line.reply.content,
                    "role": "assistant",
                    "tool_calls": calls,
                }
                chain = sha256(chain + sha256(_encode(message)).digest()).digest()
                effects += 1
            elif isinstance(line, BashEffect):
                assert line.reply is not None
                key = sha256(_encode(line.request)).hexdigest()
                sha256(_encode(line.reply)).digest()
                content = line.reply.stdout
                if isinstance(content, Stored) and content.line is not None:
                    source = lines[content.line - 1]  # an output that was seen before
                    assert isinstance(source, BashEffect)
                    assert source.reply is not None
                    content = source.reply.stdout
                result = {"content": content, "role": "tool", "tool_call_id": ""}
                chain = sha256(chain + sha256(_encode(result)).digest()).digest()
                effects += 1
            elif isinstance(line, MessageLine) and line.content is None:
                chain = sha256(chain + sha256(_encode(line.message)).digest()).digest()
        if not key:
            raise AssertionError(path)
    return effects
