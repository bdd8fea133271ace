"""Run a program that may call no io_uring_setup, as in a container: forbidding.py PROGRAM ...

What Docker's default seccomp profile does to it; root or not.
"""

import ctypes
import os
import struct
import sys

IO_URING_SETUP = 425
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
BPF_LD_W_ABS, BPF_JEQ_K, BPF_RET_K = 0x20, 0x15, 0x06
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000
EPERM = 1


def forbid(call: int) -> None:
    """Let this system call fail with EPERM in this process and its children from now on."""
    lines = b"".join(
        struct.pack("=HBBI", *line)
        for line in [
            (BPF_LD_W_ABS, 0, 0, 0),  # the call's number
            (BPF_JEQ_K, 0, 1, call),
            (BPF_RET_K, 0, 0, SECCOMP_RET_ERRNO | EPERM),
            (BPF_RET_K, 0, 0, SECCOMP_RET_ALLOW),
        ]
    )
    memory = ctypes.create_string_buffer(lines, len(lines))
    program = struct.pack("@HP", len(lines) // 8, ctypes.addressof(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0
    ):
        sys.exit(f"no filter for system calls here: {os.strerror(ctypes.get_errno())}")


if __name__ == "__main__":
    forbid(IO_URING_SETUP)
    os.execvp(sys.argv[1], sys.argv[1:])
