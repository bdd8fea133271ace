from typing import final

@final
class Sha1:
    def hmac(self, secret: bytes, content: bytes) -> str: ...

def load_sha1() -> Sha1 | None: ...
