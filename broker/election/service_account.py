"""The identity of a pod at the Kubernetes API."""

import os
import ssl

from congreve.broker.election.coordinator import CoordinatorError
from congreve.engine.state.state_file import DISK, FileSystem
from congreve.remoting.tls.certificates import client_context
from congreve.remoting.tls.settings import ClientTls


class ServiceAccount:
    """Token, namespace and authority, as Kubernetes mounts them into a pod.

    `namespace` and `headers` raise CoordinatorError for a file that cannot be read, `tls` TlsError.
    """

    def __init__(self, folder: str, files: FileSystem = DISK) -> None:
        self._folder = folder
        self._files = files

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self._read("namespace")

    def headers(self) -> dict[str, str]:
        """The token for one request: Kubernetes replaces it every hour or so."""
        return {"Authorization": f"Bearer {self._read('token')}"}

    def tls(self) -> ssl.SSLContext:
        """For connections to an API server whose certificate the cluster's authority has signed."""
        authority = os.path.join(self._folder, "ca.crt")
        return client_context(ClientTls(trust_cert_path=authority, check_host_name=True))

    def _read(self, name: str) -> str:
        path = os.path.join(self._folder, name)
        try:
            return self._files.read_all(path).decode("ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise CoordinatorError(
                f"cannot read {path} ({error}): run in a pod with a service account, or set"
                " kubernetesServiceAccount"
            ) from error
