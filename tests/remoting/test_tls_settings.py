"""Settings of TLS, as tls.properties has them."""

from __future__ import annotations

from pathlib import Path

import pytest

from congreve.remoting.tls.certificates import ServerCertificates
from congreve.remoting.tls.errors import TlsError
from congreve.remoting.tls.settings import (
    ClientAuth,
    ClientTls,
    ServerTls,
    TlsMode,
    client_tls,
    read_tls_file,
    server_tls,
)


def test_the_keys_of_tls_properties_are_read(tmp_path: Path) -> None:
    file = tmp_path / "tls.properties"
    file.write_text(
        "# comment\ntls.server.mode=enforcing\ntls.server.certPath=/a.pem\n"
        "tls.server.keyPath=/a.key\ntls.server.keyPassword=secret\n"
        "tls.server.need.client.auth=require\ntls.server.trustCertPath=/ca.pem\n"
        "tls.client.authServer=false\ntls.client.trustCertPath=/ca.pem\nother=1\n"
    )
    texts = read_tls_file(str(file))
    assert server_tls(texts) == ServerTls(
        mode=TlsMode.ENFORCING,
        cert_path="/a.pem",
        key_path="/a.key",
        key_password="secret",
        client_auth=ClientAuth.REQUIRE,
        trust_cert_path="/ca.pem",
    )
    assert client_tls(texts) == ClientTls(auth_server=False, trust_cert_path="/ca.pem")
    with pytest.raises(TlsError, match="no such file"):
        read_tls_file(str(tmp_path / "missing"))


@pytest.mark.parametrize(
    ("texts", "why"),
    [
        ({"tls.server.mode": "sometimes"}, "tls.server.mode='sometimes'"),
        ({"tls.server.mode": "enforcing"}, "needs tls.server.certPath"),
        ({"tls.server.certPath": "/a.pem"}, "belong together"),
        ({"tls.server.need.client.auth": "require"}, "needs tls.server.trustCertPath"),
        ({"tls.server.certPath": "/a", "tls.server.keyPath": "/b"}, None),
    ],
)
def test_contradicting_tls_settings_are_refused(texts: dict[str, str], why: str | None) -> None:
    if why is None:
        with pytest.raises(TlsError, match="/a"):
            ServerCertificates(server_tls(texts))
        return
    with pytest.raises(TlsError, match=why):
        server_tls(texts)
