"""Text in and out, where the model's folder has a `tokenizer.json`. The engine itself takes tokens."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from batchspec.engine.errors import EngineError


class Tokenizer:
    """The tokenizer of a model folder. Needs the `tokenizers` package."""

    def __init__(self, path: Path) -> None:
        """Read `tokenizer.json`. Raises `EngineError` where it, or the package, is unusable."""
        try:
            kind: Any = import_module("tokenizers").Tokenizer
        except ModuleNotFoundError:
            raise EngineError("text needs the tokenizers package: pip install tokenizers") from None
        try:
            self._inner: Any = kind.from_file(str(path))
        except Exception as error:  # the package raises plain exceptions for any fault of the file
            raise EngineError(f"{path} cannot be read as a tokenizer: {error}") from None

    @classmethod
    def of(cls, folder: str | Path) -> "Tokenizer | None":
        """The folder's tokenizer, or None where it has none."""
        path = Path(folder) / "tokenizer.json"
        return cls(path) if path.is_file() else None

    def encode(self, text: str) -> tuple[int, ...]:
        """The tokens of a text."""
        return tuple(self._inner.encode(text).ids)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, special ones left out."""
        return str(self._inner.decode(list(tokens)))
