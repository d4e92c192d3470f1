"""The tokenizer: reversible, stable between processes, and safe to cut anywhere."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from repro.simulator import tokens

TEXTS = st.text(max_size=200) | st.text("ab <|>openclose_sep\n", max_size=80)


@given(TEXTS)
def test_decoding_is_the_inverse_of_encoding(text: str) -> None:
    assert tokens.decode(tokens.encode(text)) == text


@given(TEXTS, st.integers(0, 200))
def test_the_first_n_tokens_read_back_are_the_same_n_tokens(text: str, n: int) -> None:
    first = tokens.encode(text)[:n]
    assert tokens.encode(tokens.decode(first)) == first


@given(TEXTS)
def test_every_number_survives_a_json_reader_with_doubles(text: str) -> None:
    assert all(0 < number < 2**53 for number in tokens.encode(text))


@given(st.lists(st.integers(0, 2**63 - 1), max_size=20))
def test_any_numbers_decode_to_some_text(numbers: list[int]) -> None:
    assert isinstance(tokens.decode(numbers), str)


def test_numbers_do_not_depend_on_what_was_seen_before() -> None:
    assert tokens.encode(" one") == (int.from_bytes(b"\x01 one", "big"),)
    assert tokens.encode("<|open|>x") == (tokens.SPECIALS["<|open|>"], int.from_bytes(b"\x01x", "big"))


def test_ordinary_words_are_about_one_token_each() -> None:
    text = "the quick brown fox jumps over the lazy dog " * 50
    assert len(text.split()) <= len(tokens.encode(text)) <= 1.2 * len(text.split())


def test_a_chat_is_framed_with_its_tools_and_text_parts() -> None:
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    assert tokens.render_chat(messages) == "<|im_start|>user\nab<|im_end|>\n<|im_start|>assistant\n"
    assert tokens.render_chat(messages, add_generation_prompt=False).endswith("ab<|im_end|>\n")
    assert "# Tools" in tokens.render_chat(messages, [{"type": "function"}])
