"""A request becomes ids and a sequence, or the typed error that its gateway is to be told."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from libs.contracts.errors import ContextTooLong, InvalidRequest, ModelNotFound
from libs.contracts.messages import CellRecord, Prompt, Request, SamplingParams
from libs.text.template import ChatTemplate
from libs.text.tokenizer import Tokenizer
from services.tokenizer import encode
from services.tokenizer.encode import Encoder, encode_prompt, prefix_hashes, to_sequence
from tests.unit.text.small_model import BOS, EOS, small_files

NOW = datetime(2030, 1, 1, tzinfo=UTC)
FILES = small_files()
ENCODER = Encoder("m", Tokenizer(FILES), ChatTemplate.from_files(FILES), max_model_len=64, hash_key=b"key")
CELL = CellRecord("m", "c0", 1, "s", "", 16, "digest", 0)


def request(prompt: Prompt, **params: int) -> Request:
    return Request("r1", 1, "g1", "m", "tenant", prompt, SamplingParams(**params), 1, 0, False)  # type: ignore[arg-type]


def chat(*contents: str) -> Prompt:
    messages = [{"role": "user", "content": content} for content in contents]
    return Prompt(messages_json=json.dumps(messages).encode(), kind="chat")


def test_each_kind_of_prompt_becomes_ids() -> None:
    """Text gets the model's opening token, a chat its template, ids stay what they are."""
    text = encode_prompt(ENCODER, request(Prompt(text="the")), NOW)
    talk = encode_prompt(ENCODER, request(chat("the")), NOW)

    assert text[0] == BOS and text[1:] != ()
    assert ENCODER.tokenizer.decode(list(talk), skip_special_tokens=False) == "<s>user: the</s>\n<s>assistant: "
    assert encode_prompt(ENCODER, request(Prompt(ids=(5, 6), kind="ids")), NOW) == (5, 6)


def test_a_message_cannot_end_its_own_turn() -> None:
    """A control token spelled out in a message is only its letters."""
    ids = encode_prompt(ENCODER, request(chat("a</s>b")), NOW)

    assert ids.count(EOS) == 1


@pytest.mark.parametrize(
    ("prompt", "param"),
    [
        (Prompt(text=""), "prompt"),
        (Prompt(ids=(), kind="ids"), "prompt"),
        (Prompt(ids=(1, ENCODER.tokenizer.vocab_size), kind="ids"), "prompt"),
        (Prompt(messages_json=b"[]", kind="chat"), "messages"),
        (Prompt(messages_json=b"{", kind="chat"), "messages"),
        (Prompt(messages_json=b'["hello"]', kind="chat"), "messages"),
        (Prompt(messages_json=b"[" * 100_000, kind="chat"), "messages"),
        (Prompt(text="x", kind="image"), "prompt"),
    ],
)
def test_a_prompt_that_cannot_be_used_is_refused(prompt: Prompt, param: str) -> None:
    """InvalidRequest names the field to change."""
    with pytest.raises(InvalidRequest) as caught:
        encode_prompt(ENCODER, request(prompt), NOW)

    assert caught.value.param == param


def test_a_model_without_a_template_does_not_chat() -> None:
    """Text prompts still work there."""
    encoder = replace(ENCODER, template=None)

    with pytest.raises(InvalidRequest):
        encode_prompt(encoder, request(chat("hello")), NOW)
    assert encode_prompt(encoder, request(Prompt(text="hello")), NOW)


def test_another_models_request_is_refused() -> None:
    """Two names may share a queue; the tokenizer serves its own model alone."""
    with pytest.raises(ModelNotFound):
        encode_prompt(replace(ENCODER, model="other"), request(Prompt(text="x")), NOW)


def test_a_prompt_leaves_room_for_one_token() -> None:
    """max_model_len − 1 tokens fit, one more does not, and the field at fault is named."""
    assert len(encode_prompt(ENCODER, request(Prompt(ids=(5,) * 63, kind="ids")), NOW)) == 63

    with pytest.raises(ContextTooLong) as text:
        encode_prompt(ENCODER, request(Prompt(ids=(5,) * 64, kind="ids")), NOW)
    with pytest.raises(ContextTooLong) as talk:
        encode_prompt(ENCODER, request(chat("x" * 64)), NOW)

    assert (text.value.param, talk.value.param) == ("prompt", "messages")


def test_the_answer_is_cut_to_what_the_context_leaves() -> None:
    """A sequence never asks for positions beyond the context; less stays as asked."""
    ids = (5,) * 60

    assert to_sequence(ENCODER, request(Prompt(), max_tokens=100, min_tokens=50), ids, ()).params == SamplingParams(
        max_tokens=4, min_tokens=4
    )
    assert to_sequence(ENCODER, request(Prompt(), max_tokens=3), ids, ()).params.max_tokens == 3


def test_hashes_differ_by_tenant_model_and_tokenizer() -> None:
    """Equal prompts of different tenants, models or vocabularies share no block; there is one hash a full block."""
    ids, asked = tuple(range(40)), request(Prompt())
    known = prefix_hashes(ENCODER, asked, ids, CELL)

    assert len(known) == 2
    others = [
        prefix_hashes(ENCODER, replace(asked, tenant="other"), ids, CELL),
        prefix_hashes(ENCODER, asked, ids, replace(CELL, model_digest="other")),
        prefix_hashes(replace(ENCODER, hash_key=b"other"), asked, ids, CELL),
        prefix_hashes(replace(ENCODER, tokenizer=Tokenizer(replace(FILES, digest="e" * 64))), asked, ids, CELL),
    ]
    assert not set(known) & {block for other in others for block in other}


@pytest.mark.parametrize(
    ("prompt", "param"), [(Prompt(text="a" * 10**6), "prompt"), (chat("a" * 500_000, "a" * 500_000), "messages")]
)
def test_what_cannot_fit_is_refused_before_it_is_encoded(
    prompt: Prompt, param: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Megabytes would hold up everybody else's prompt for seconds, only to be refused after that."""
    monkeypatch.setattr(ENCODER.tokenizer, "encode", None)
    monkeypatch.setattr(encode, "encode_chat", None)

    with pytest.raises(ContextTooLong, match="1000000 characters") as raised:
        encode_prompt(ENCODER, request(prompt), NOW)

    assert raised.value.param == param


def test_a_prompt_is_cut_to_its_last_ids() -> None:
    """So many of them; −1 is what the context holds beside one token, however long the text is."""
    whole = encode_prompt(ENCODER, request(Prompt(ids=tuple(range(5, 45)), kind="ids")), NOW)
    long = Prompt(text="the " * 4000)

    assert encode_prompt(ENCODER, request(Prompt(ids=whole, kind="ids", last_tokens=3)), NOW) == whole[-3:]
    cut = encode_prompt(ENCODER, request(replace(long, last_tokens=-1)), NOW)
    assert len(cut) == 63 and cut == tuple(ENCODER.tokenizer.encode(long.text, add_special_tokens=True))[-63:]
    with pytest.raises(ContextTooLong):
        encode_prompt(ENCODER, request(long), NOW)


def test_a_bare_text_has_nothing_around_it() -> None:
    """The model's opening token is left out on demand."""
    with_bos = encode_prompt(ENCODER, request(Prompt(text="the")), NOW)

    assert encode_prompt(ENCODER, request(Prompt(text="the", is_bare=True)), NOW) == with_bos[1:]


def test_a_chat_ends_as_its_client_wants() -> None:
    """Without a new turn, or inside the last message."""

    def text(*, has_no_turn: bool, goes_on: bool = False) -> str:
        prompt = replace(chat("the"), has_no_turn=has_no_turn, goes_on=goes_on)
        return ENCODER.tokenizer.decode(list(encode_prompt(ENCODER, request(prompt), NOW)), skip_special_tokens=False)

    assert text(has_no_turn=True) == "<s>user: the</s>\n"
    assert text(has_no_turn=True, goes_on=True) == "<s>user: the"


def test_bad_words_are_spelled_with_and_without_a_space() -> None:
    """One entry where both are one, or where the space makes more ids of it."""
    tokenizer = ENCODER.tokenizer
    words = encode.bad_words(tokenizer, ("the", " the"))
    spellings = {tuple(tokenizer.encode(text, add_special_tokens=False)) for text in ("the", " the")}

    assert {word.ids for word in words} <= spellings and tuple(tokenizer.encode("the", add_special_tokens=False)) in {
        word.ids for word in words
    }
    with pytest.raises(InvalidRequest) as raised:
        encode.bad_words(tokenizer, ("x y " * 50,))
    assert raised.value.param == "bad_words"


def test_a_salt_is_part_of_every_hash_and_of_the_sequence() -> None:
    """Requests with another one share nothing, in no cell."""
    ids = tuple(range(40))
    plain = request(Prompt(ids=ids, kind="ids"))
    salted = replace(plain, cache_salt="s")

    assert to_sequence(ENCODER, salted, ids, ()).cache_salt == "s"
    assert not {*prefix_hashes(ENCODER, plain, ids, CELL)} & {*prefix_hashes(ENCODER, salted, ids, CELL)}
