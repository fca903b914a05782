"""Turns a chat into prompt ids: the one place where template and tokenizer meet."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from libs.text.template import NOTHING, ChatTemplate
from libs.text.tokenizer import Tokenizer


def encode_chat(
    tokenizer: Tokenizer,
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    *,
    now: datetime,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
    tools: Sequence[Mapping[str, Any]] | None = None,
    variables: Mapping[str, object] = NOTHING,
    on_rendered: Callable[[], None] = lambda: None,
) -> list[int]:
    """Prompt ids of a conversation. Control tokens come from the template alone, never from a message's text.

    Arguments and errors are those of `ChatTemplate.render`; `on_rendered` is called between template and tokenizer.
    """
    text = template.render(
        messages,
        now=now,
        add_generation_prompt=add_generation_prompt,
        continue_final_message=continue_final_message,
        tools=tools,
        variables=variables,
        guard=tokenizer.guard,
    )
    on_rendered()
    return tokenizer.encode(text, add_special_tokens=False)
