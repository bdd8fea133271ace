from typing import final

@final
class Dictionary: ...
