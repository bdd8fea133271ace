"""Tests that need HTTP/2, which a build without libnghttp2 has not."""

from __future__ import annotations

import pytest

from congreve.remoting.http2.built import http2_refusal

needs_http2 = pytest.mark.skipif(http2_refusal() is not None, reason="not installed: libnghttp2")
