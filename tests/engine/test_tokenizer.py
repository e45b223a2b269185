import json
from importlib.util import find_spec
from pathlib import Path

import pytest

from batchspec.engine.errors import EngineError
from batchspec.engine.tokenizer import Tokenizer

WORDS = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [],
    "normalizer": None,
    "pre_tokenizer": {"type": "Whitespace"},
    "post_processor": None,
    "decoder": None,
    "model": {"type": "WordLevel", "vocab": {"one": 0, "two": 1, "?": 2}, "unk_token": "?"},
}


def test_a_folder_without_a_tokenizer_has_none(tmp_path: Path) -> None:
    assert Tokenizer.of(tmp_path) is None


@pytest.mark.skipif(find_spec("tokenizers") is not None, reason="the package is installed")
def test_without_the_package_the_error_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="pip install tokenizers"):
        Tokenizer.of(tmp_path)


@pytest.mark.skipif(find_spec("tokenizers") is None, reason="needs the tokenizers package")
def test_text_goes_in_and_comes_out(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text(json.dumps(WORDS))
    tokenizer = Tokenizer.of(tmp_path)
    assert tokenizer is not None
    assert tokenizer.encode("two one three") == (1, 0, 2)
    assert tokenizer.decode([0, 1]) == "one two"
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(EngineError, match="cannot be read as a tokenizer"):
        Tokenizer.of(tmp_path)
