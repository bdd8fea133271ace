"""Functions of the OpenSSL that Python's hashlib has loaded, for code without the GIL."""

import ctypes


def addresses(*names: str) -> list[int] | None:
    """Where these functions are; None if this Python hides them, or its OpenSSL lacks one."""
    try:
        import _hashlib

        library = ctypes.CDLL(_hashlib.__file__)
        found = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in names]
    except (ImportError, AttributeError, OSError):
        return None
    return [each for each in found if each is not None]
