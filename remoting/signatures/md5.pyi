from typing import final

@final
class Md5:
    def hex(self, data: bytes) -> str: ...

def load_md5() -> Md5 | None: ...
