"""Turns a Request into the Sequence that a scheduler takes, or a typed error. Pure: no clock, no I/O."""

import json
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from datetime import datetime

from libs.contracts import block_hash
from libs.contracts.errors import ContextTooLong, InvalidRequest, ModelNotFound
from libs.contracts.messages import BadWord, CellRecord, Prompt, Request, Sequence, TokenizeQuery
from libs.contracts.token_rules import MAX_BAD_WORD_IDS
from libs.text.chat import encode_chat
from libs.text.template import ChatTemplate
from libs.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Encoder:
    """What turns text of one model into ids; shared by all threads."""

    model: str
    tokenizer: Tokenizer
    template: ChatTemplate | None  # None: the model does not chat
    max_model_len: int
    hash_key: bytes


def encode_prompt(
    encoder: Encoder, request: Request, now: datetime, on_rendered: Callable[[], None] = lambda: None
) -> tuple[int, ...]:
    """The prompt's ids, with room for one token of answer. `on_rendered` is called after a chat's template.

    `now` is what a template that writes the date sees; the same on every try of a request, so that the ids are too.
    Raises ModelNotFound, InvalidRequest, ContextTooLong; `param` names the request's field.
    """
    if request.model != encoder.model:
        raise ModelNotFound(f"the model {request.model!r} is not served here", param="model")
    ids = _ids(encoder, request.prompt, now, on_rendered, add_special_tokens=not request.prompt.is_bare)
    if not ids:
        raise InvalidRequest("the prompt has no tokens", param=_param(request.prompt))
    check_length(request, len(ids), encoder.max_model_len - 1)
    return tuple(ids)


def answer_query(encoder: Encoder, query: TokenizeQuery, now: datetime) -> tuple[int, ...]:
    """The ids that a request with this prompt would have. Raises as encode_prompt does, but for empty or long ones."""
    if query.model != encoder.model:
        raise ModelNotFound(f"the model {query.model!r} is not served here", param="model")
    return tuple(_ids(encoder, query.prompt, now, lambda: None, add_special_tokens=query.add_special_tokens))


def check_length(request: Request, prompt_tokens: int, limit_tokens: int) -> None:
    """Raises ContextTooLong when the prompt has more than `limit_tokens` tokens."""
    if prompt_tokens > limit_tokens:
        raise ContextTooLong(
            f"the prompt has {prompt_tokens} tokens, at most {limit_tokens} fit with one token of answer",
            param=_param(request.prompt),
        )


def prefix_hashes(encoder: Encoder, request: Request, ids: SequenceOf[int], cell: CellRecord) -> tuple[bytes, ...]:
    """One hash per full block of `ids`, as the cells of this block size and model digest know them."""
    root = block_hash.root_hash(
        encoder.hash_key,
        tenant=request.tenant,
        model_digest=cell.model_digest,
        adapter="",
        tokenizer_digest=encoder.tokenizer.digest,
        salt=request.cache_salt,
    )
    return block_hash.block_hashes(encoder.hash_key, root, ids, cell.block_tokens)


def to_sequence(encoder: Encoder, request: Request, ids: tuple[int, ...], hashes: tuple[bytes, ...]) -> Sequence:
    """The message to the scheduler. The answer's limits are cut to what the context leaves after the prompt."""
    room_tokens = encoder.max_model_len - len(ids)
    params = request.params
    return Sequence(
        request_id=request.request_id,
        epoch=request.epoch,
        gateway=request.gateway,
        model=request.model,
        tenant=request.tenant,
        ids=ids,
        block_hashes=hashes,
        params=replace(
            params,
            max_tokens=min(params.max_tokens, room_tokens),
            min_tokens=min(params.min_tokens, room_tokens),
            bad_words=params.bad_words + bad_words(encoder.tokenizer, request.bad_words),
        ),
        choices=request.choices,
        deadline_unix_ms=request.deadline_unix_ms,
        priority=request.priority,
        is_timed=request.is_timed,
        cache_salt=request.cache_salt,
    )


def bad_words(tokenizer: Tokenizer, words: SequenceOf[str]) -> tuple[BadWord, ...]:
    """The ids of each word as it stands, and with a space before it where that makes it the beginning of another token.

    As vLLM has it: the latter only where its first id differs and it has as many ids.
    """
    found = []
    for word in words:
        alone, spaced = (tokenizer.encode(prefix + word.lstrip(), add_special_tokens=False) for prefix in ("", " "))
        found.append(alone)
        if spaced and alone and spaced[0] != alone[0] and len(spaced) == len(alone):
            found.append(spaced)
    if long := next((ids for ids in found if len(ids) > MAX_BAD_WORD_IDS), None):
        raise InvalidRequest(f"one of bad_words has {len(long)} tokens, at most {MAX_BAD_WORD_IDS}", param="bad_words")
    return tuple(BadWord(tuple(ids)) for ids in found if ids)


def _ids(
    encoder: Encoder, prompt: Prompt, now: datetime, on_rendered: Callable[[], None], *, add_special_tokens: bool = True
) -> SequenceOf[int]:
    """`add_special_tokens` is of raw text: a chat's template writes what a chat needs."""
    ids = _all_ids(encoder, prompt, now, on_rendered, add_special_tokens)
    if not prompt.last_tokens:
        return ids
    most = encoder.max_model_len - 1
    return ids[-(most if prompt.last_tokens < 0 else min(prompt.last_tokens, most)) :]


def _all_ids(
    encoder: Encoder, prompt: Prompt, now: datetime, on_rendered: Callable[[], None], add_special_tokens: bool
) -> SequenceOf[int]:
    tokenizer = encoder.tokenizer
    match prompt.kind:
        case "ids":
            if any(not 0 <= token_id < tokenizer.vocab_size for token_id in prompt.ids):
                raise InvalidRequest(f"token ids must be below {tokenizer.vocab_size}", param="prompt")
            return prompt.ids
        case "text":
            _check_size(encoder, prompt, len(prompt.text))
            return tokenizer.encode(prompt.text, add_special_tokens=add_special_tokens) if prompt.text else ()
        case "chat":
            if encoder.template is None:
                raise InvalidRequest("this model has no chat template", param="messages")
            messages = _messages(prompt.messages_json)
            _check_size(encoder, prompt, sum(len(text) for text in _texts(messages)))
            return encode_chat(
                tokenizer,
                encoder.template,
                messages,
                now=now,
                add_generation_prompt=not prompt.has_no_turn,
                continue_final_message=prompt.goes_on,
                variables=json.loads(prompt.arguments_json or b"{}"),
                on_rendered=on_rendered,
            )
        case kind:
            raise InvalidRequest(f"unknown kind of prompt: {kind!r}", param="prompt")


def _messages(messages_json: bytes) -> list[dict[str, object]]:
    try:
        messages = json.loads(messages_json)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the messages are not JSON", param="messages") from error
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidRequest("the messages are not a list of objects", param="messages")
    return messages


def _param(prompt: Prompt) -> str:
    return "messages" if prompt.kind == "chat" else "prompt"


def _check_size(encoder: Encoder, prompt: Prompt, chars: int) -> None:
    """Refuse what cannot fit however well it encodes, before a second is spent on it: each token is only so long."""
    least_tokens = 0 if prompt.last_tokens else chars // encoder.tokenizer.longest_token_bytes
    if least_tokens >= encoder.max_model_len:
        raise ContextTooLong(
            f"the prompt of {chars} characters has at least {least_tokens} tokens, the context {encoder.max_model_len}",
            param=_param(prompt),
        )


def _texts(messages: list[dict[str, object]]) -> Iterator[str]:
    """The text of all messages, whole or in parts."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, dict) else part
            if isinstance(text, str):
                yield text
