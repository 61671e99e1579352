"""Tool servers of our own that misbehave in every way that was seen or feared.

`stdio_server` and `http_server` speak the protocol by hand, with the standard library alone: a
server built with the SDK cannot break the rules. `sdk_server` is built with the SDK.
"""
