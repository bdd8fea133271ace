"""The compiled failpoints, and the environment that chooses one for a process."""

import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("failpoints.c")


def compiled(folder: Path) -> Path:
    """The library, made in `folder`."""
    library = folder / "failpoints.so"
    command = ["cc", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
    subprocess.run([*command, "-ldl"], check=True)
    return library


def environment(
    library: Path, root: Path, call: str, file: str, nth: int, does: str, times: int = 1
) -> dict[str, str]:
    """The environment for failpoints.c, whose first lines explain each variable."""
    return {
        "LD_PRELOAD": str(library),
        "FAILPOINT_ROOT": str(root),
        "FAILPOINT_CALL": call,
        "FAILPOINT_FILE": file,
        "FAILPOINT_NTH": str(nth),
        "FAILPOINT_DOES": does,
        "FAILPOINT_TIMES": str(times),
    }
