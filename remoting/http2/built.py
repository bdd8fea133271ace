"""Whether this build has HTTP/2."""

from congreve.remoting.lanes.http2 import CallCodec, Http2Sessions


def http2_refusal() -> str | None:
    """Why this build has no HTTP/2; None if it has it."""
    try:
        from congreve.remoting.http2 import sessions
    except ImportError:
        return "this build has no HTTP/2: libnghttp2 was missing when it was compiled"
    del sessions
    return None


def http2_sessions(codec: CallCodec, *, message_max: int) -> Http2Sessions:
    """Sessions for one lane. Raises ImportError where http2_refusal() says why."""
    from congreve.remoting.http2.sessions import NgHttp2Sessions

    return NgHttp2Sessions(codec, message_max=message_max)
