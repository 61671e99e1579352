"""vcrpy's cassette files, read without trust: no object is built, and memory is bounded.

A file is read if it has at most 64 MiB, a body if it has that unpacked, all bodies of a file if
they have four times that. How many values a text may hold is counted before any of them is made: a
few bytes can stand for a large object.
"""

from __future__ import annotations

import base64
import json
import os
import re
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from harness.errors import DataError, LackError
from harness.interop.archive import read_zstd
from harness.interop.reading import MAX_RECORD, read_file

SUFFIXES = (".yaml", ".yml", ".json")
MAX_VALUES = 200_000
"""Values of one file: a conversation of a thousand turns has a quarter of that."""
MAX_DEPTH = 100
MAX_FILES = 100_000
MAX_JSON = 2_000_000
"""Bytes of a JSON text without its strings and blanks: what its values are counted by."""
MAX_RESPONSE = 8_000_000
"""The same of a response: a stream repeats itself in every chunk."""

# to the end where the closing quote is missing: nothing is looked at twice
_TEXTS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|\s++', re.DOTALL)
_PLAIN_TAGS = {"binary", "bool", "float", "int", "map", "null", "seq", "str", "timestamp"}


class NoCassetteError(DataError):
    """The file can be read and is something else."""


class Interaction(NamedTuple):
    """One request and its response."""

    method: str
    uri: str
    sent: bytes
    status: int
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    """Content encoding undone."""


def find_files(path: Path) -> list[Path]:
    """The files of a folder that may be cassettes, sorted; links to folders are not followed."""
    found: list[Path] = []
    for at, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [
            Path(at, name) for name in names if name.endswith(SUFFIXES) and not name.startswith(".")
        ]
        if len(found) > MAX_FILES:
            raise DataError(f"{path} holds more than {MAX_FILES} files")
    return sorted(found)


def read_cassette_file(path: Path) -> list[Interaction]:
    """The interactions of a cassette. NoCassetteError for another file, DataError for a bad one."""
    data = read_file(path)
    found = parse_json(data, str(path)) if data.lstrip()[:1] in (b"{", b"[") else _yaml(data, path)
    if isinstance(found, list) and found and isinstance(found[0], dict) and "request" in found[0]:
        raise DataError(f"{path} is a cassette of vcrpy before 1.0", hint="python -m vcr.migration")
    interactions = found.get("interactions") if isinstance(found, dict) else None
    if not isinstance(interactions, list):
        raise NoCassetteError(f"{path} is no cassette of vcrpy: it has no list of interactions")
    if found.get("version", 1) != 1:
        version = str(found["version"])[:40]
        raise DataError(f"{path} is a cassette of version {version}; this program reads 1")
    read, size = [], 0
    for number, value in enumerate(interactions, 1):
        read.append(_interaction(value, f"{path}, interaction {number}"))
        size += len(read[-1].sent) + len(read[-1].body)
        if size > 4 * MAX_RECORD:
            raise DataError(f"the bodies in {path} are larger than {4 * MAX_RECORD >> 20} MiB")
    return read


# --------------------------------------------------------------------------------- to values


def parse_json(data: bytes, what: str) -> Any:
    """The value of a JSON text; NaN and infinity become null. DataError for anything else."""
    _count_values(data, MAX_JSON, what)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        pass
    try:  # lone surrogates and NaN are only read by the standard library
        return json.loads(data, parse_constant=lambda _: None)
    except RecursionError:
        raise DataError(f"{what} is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"{what} is no JSON: {error}") from None


def _count_values(data: bytes, limit: int, what: str) -> None:
    # what is left without texts and blanks is a bound on how many values there are
    if len(data) > limit and len(_TEXTS.sub(b"", data)) > limit:
        raise DataError(f"{what} holds too many values; it is not read")


def _yaml(data: bytes, path: Path) -> Any:
    try:
        import yaml
    except ImportError:
        raise LackError(
            "the package PyYAML is missing, and cassettes of vcrpy are YAML",
            hint="pip install 'gaia-harness[vcr]'",
        ) from None
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        depth = 0
        for count, event in enumerate(yaml.parse(data, Loader=loader)):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if count > MAX_VALUES or depth > MAX_DEPTH:
                much = "nested too deeply" if depth > MAX_DEPTH else "too many values"
                raise DataError(f"{path} is not read: {much}")
            tag = getattr(event, "tag", None)
            if tag and tag.removeprefix("tag:yaml.org,2002:") not in _PLAIN_TAGS:
                shown = tag.replace("tag:yaml.org,2002:", "!!")[:80]
                raise DataError(f"{path} asks for an object ({shown}): only plain values are read")
        reader = loader(data)  # the safe one in C, where it is there: it builds plain values only
        try:
            return reader.get_single_data()
        finally:
            reader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        told = " ".join(str(error).split())
        raise DataError(f"{path} is no YAML: {told[:200]}") from None


# ---------------------------------------------------------------------------- to interactions


def _interaction(value: Any, what: str) -> Interaction:
    request, response = _mapping(value, "request", what), _mapping(value, "response", what)
    method, uri = request.get("method"), request.get("uri")
    if not isinstance(method, str) or not isinstance(uri, str):
        raise DataError(f"{what} is damaged: its request has no method or no uri")
    if "status_code" in response:  # as httpx was recorded before vcrpy 6
        status, body = response["status_code"], response.get("content")
    else:
        status, body = response.get("status"), response.get("body")
        status = status.get("code") if isinstance(status, dict) else status
    if not isinstance(status, int) or isinstance(status, bool) or not 100 <= status <= 599:
        raise DataError(f"{what} is damaged: its response has no status")
    headers = _headers(response.get("headers"))
    what_body = f"{what}, the response's body"
    body = _unpacked(_bytes(body, what_body), headers.get("content-encoding", ""), what_body)
    _count_values(body, MAX_RESPONSE, what_body)
    return Interaction(
        method=method.upper(),
        uri=uri,
        sent=_bytes(request.get("body"), f"{what}, the request's body"),
        status=status,
        headers=headers,
        body=body,
    )


def _mapping(value: Any, key: str, what: str) -> dict[str, Any]:
    found = value.get(key) if isinstance(value, dict) else None
    if not isinstance(found, dict):
        raise DataError(f"{what} is damaged: it has no {key}")
    return found


def _headers(value: Any) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, values in value.items() if isinstance(value, Mapping) else ():
        first = values[0] if isinstance(values, list) and values else values
        if isinstance(first, bytes):
            first = first.decode("latin-1")
        if isinstance(name, str) and isinstance(first, str | int | float):
            found[name.lower()] = str(first)
    return found


def _bytes(value: Any, what: str) -> bytes:
    """A body in one of the forms that vcrpy has given it over the years."""
    if isinstance(value, dict):
        if "base64_string" in value:
            packed = value["base64_string"]
            try:
                return base64.b64decode(packed, validate=False)
            except (TypeError, ValueError):
                raise DataError(f"{what} is damaged: it is no base64") from None
        value = value.get("string")
    if value is None:
        return b""
    if isinstance(value, str):
        return value.encode("utf-8", "replace")
    if isinstance(value, bytes):
        return value
    raise DataError(f"{what} is no text")


def _unpacked(data: bytes, encoding: str, what: str) -> bytes:
    """A body with its content encoding undone; one that was stored unpacked stays as it is."""
    for name in reversed([part.strip().lower() for part in encoding.split(",") if part.strip()]):
        if name in ("gzip", "x-gzip"):
            packed, bits = data[:2] == b"\x1f\x8b", zlib.MAX_WBITS | 16
        elif name == "deflate":
            zlib_head = len(data) > 1 and data[0] & 15 == 8 and (data[0] << 8 | data[1]) % 31 == 0
            packed = zlib_head or not _looks_plain(data)
            bits = zlib.MAX_WBITS if zlib_head else -zlib.MAX_WBITS
        elif name == "identity" or _looks_plain(data):
            continue
        elif name == "zstd":
            data = _unzstd(data, what)
            continue
        else:
            raise DataError(
                f"{what} is packed with {name[:20]}, which is not read",
                hint="record it with decode_compressed_response=True",
            )
        if packed:
            data = _inflated(data, bits, what)
    return data


def _looks_plain(data: bytes) -> bool:
    """Whether a body begins as JSON, a stream of events or text does."""
    return all(byte >= 32 or byte in b"\t\r\n" for byte in data[:16]) and data[:16].isascii()


def _unzstd(data: bytes, what: str) -> bytes:
    try:
        found = read_zstd(data, MAX_RECORD + 1, what)
    except LackError:
        raise
    except Exception as error:  # the library's own, which is of no base that could be named here
        raise DataError(f"{what} is damaged: {error}") from None
    if len(found) > MAX_RECORD:
        raise DataError(f"{what} is larger than {MAX_RECORD >> 20} MiB; it is not read")
    return found


def _inflated(data: bytes, bits: int, what: str) -> bytes:
    unpacker = zlib.decompressobj(bits)
    try:
        found = unpacker.decompress(data, MAX_RECORD + 1)
    except zlib.error as error:
        raise DataError(f"{what} is damaged: {error}") from None
    if len(found) > MAX_RECORD:
        raise DataError(f"{what} is larger than {MAX_RECORD >> 20} MiB; it is not read")
    if not unpacker.eof:
        raise DataError(f"{what} is damaged: it is cut off")
    return found
