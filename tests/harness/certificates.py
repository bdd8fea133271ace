"""An authority and certificates for tests, made with openssl."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CURVE = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1")


class Authority:
    """Signs certificates in `folder`; `path` has its own certificate."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        if shutil.which("openssl") is None:
            pytest.skip("not installed: openssl")
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.name = name
        self.path = folder / f"{name}.pem"
        self._key = folder / f"{name}.key"
        _openssl(
            *("req", "-x509", *CURVE, "-nodes", "-days", "3", "-subj", f"/CN={name}"),
            *("-keyout", str(self._key), "-out", str(self.path)),
        )

    def issue(
        self, name: str, *, days: int = 2, password: str = "", field: str = "CN"
    ) -> tuple[Path, Path]:
        """A certificate for 127.0.0.1 and localhost, and its key in PKCS#8.

        `field` is that of the subject that has the name.
        """
        base = self.folder / name
        certificate, key, request = (base.with_suffix(s) for s in (".pem", ".key", ".csr"))
        names = base.with_suffix(".names")
        names.write_text("subjectAltName=IP:127.0.0.1,DNS:localhost\n")
        secret = ("-passout", f"pass:{password}") if password else ("-nodes",)
        _openssl(
            *("req", *CURVE, *secret, "-subj", f"/{field}={name}"),
            *("-keyout", str(key), "-out", str(request)),
        )
        _openssl(
            *("x509", "-req", "-in", str(request), "-CA", str(self.path), "-CAkey", str(self._key)),
            *("-CAcreateserial", "-days", str(days), "-extfile", str(names)),
            *("-out", str(certificate)),
        )
        return certificate, key


def ha_tls_settings(authority: Authority, certificate: Path, key: Path) -> dict[str, str]:
    """Settings of a broker whose HA port wants certificates; its other ports do not."""
    file = authority.folder / "tls.properties"
    file.write_text(
        f"tls.server.certPath={certificate}\ntls.server.keyPath={key}\n"
        f"tls.server.trustCertPath={authority.path}\ntls.client.trustCertPath={authority.path}\n"
        f"tls.client.certPath={certificate}\ntls.client.keyPath={key}\n"
    )
    return {
        "tlsConfigFile": str(file),
        "haTlsEnable": "true",
        "haTlsNeedClientAuth": "require",
    }


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)
