"""What in a tool server's configuration is a secret, told by the names that stand beside it.

A name that says key, token, secret, password, auth, cookie or credential makes its value one;
plain numbers and switches are none. A name too many hides a word in a transcript, a name too few
gives a key away.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

MARK = "[secret]"

_NAME = r"[\w.-]*(?:key|token|secret|passw|passphrase|auth|cookie|credential)[\w.-]*"
_NO_SECRET = re.compile(r"[+-]?\d{0,9}(\.\d*)?|true|false|yes|no|on|off|none|null", re.I)

_FLAG = re.compile(f"-+{_NAME}", re.I)
_WHOLE = re.compile(rf"-+{_NAME}=(?P<flag>.+)|{_NAME}=(?P<value>\S+)", re.I | re.S)
# inside a text: `?key=value`, `KEY=value command`, `"key": "value"`, `Header: value`
_INNER = re.compile(
    rf"(?<![\w./-]){_NAME}"
    r"""(?:=["']?(?P<word>[^\s"'&,}]+)|["']?:\s*["']?(?P<rest>[^"',}]+))""",
    re.I,
)
_USER = re.compile(r"(?<=://)(?P<user>[^/\s@?#]+)(?=@)")
_COOKIES = re.compile(r"\s*[\w.-]+=[^;]*(;\s*[\w.-]+=[^;]*)*")
_SCHEMES = ("bearer", "basic", "token", "apikey", "digest")


def is_secret(name: str, value: str) -> bool:
    """Whether the value is a secret, judged by its name."""
    return re.search(_NAME, name, re.I) is not None and not _NO_SECRET.fullmatch(value)


def parts(value: str) -> list[str]:
    """A secret and what of it is one by itself: the token behind `Bearer`, a cookie's value."""
    found = [value]
    scheme, _, rest = value.partition(" ")
    if rest and scheme.lower() in _SCHEMES:
        found.append(rest.strip())
        if scheme.lower() == "basic":
            try:
                pair = base64.b64decode(rest, validate=True).decode()
            except ValueError:
                return found
            found += [pair, pair.partition(":")[2]]
    elif _COOKIES.fullmatch(value):
        found += [pair.partition("=")[2].strip() for pair in value.split(";")]
    return found


def hide(text: str) -> tuple[str, list[str]]:
    """A text with the secrets in it marked, and these secrets."""
    found: list[str] = []

    def mark(match: re.Match[str]) -> str:
        group = match.lastgroup
        assert group is not None  # every pattern here has a named group that matched
        value = match[group]
        if _NO_SECRET.fullmatch(value):
            return match[0]
        for spelled in {value, unquote(value)}:
            found.extend(parts(spelled))
            if group == "user":
                found.append(spelled.partition(":")[2])
        return match.string[match.start() : match.start(group)] + MARK

    whole = _WHOLE.fullmatch(text)
    if whole is not None:
        return mark(whole), found
    return _INNER.sub(mark, _USER.sub(mark, text)), found


def hide_arguments(args: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """Each argument as `hide` gives it; what follows `--api-key` is a secret as a whole."""
    follows = False
    for arg in args:
        if follows and not arg.startswith("--") and not _NO_SECRET.fullmatch(arg):
            yield MARK, parts(arg)
        else:
            yield hide(arg)
        follows = _FLAG.fullmatch(arg) is not None
