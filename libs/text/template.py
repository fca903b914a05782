"""Renders a chat into the text that the model was trained on, by the model's own Jinja template in a sandbox."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NoReturn

from jinja2 import Environment, TemplateError, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from libs.contracts.errors import ConfigError, InvalidRequest
from libs.text.chat_messages import plain_messages
from libs.text.model_files import ModelFiles

MAX_RENDERED_CHARS: Final = 8 << 20
RESERVED: Final = frozenset(
    {"messages", "tools", "documents", "add_generation_prompt", "raise_exception", "strftime_now"}
)
# Marks where the last message ends: a Unicode noncharacter, and a space that is gone if the template trims.
END_MARK: Final = "\ufdd1 "
NOTHING: Final[Mapping[str, object]] = MappingProxyType({})

# All that rendering may raise for some conversation: a template is a program, and the messages are its input.
RENDER_ERRORS: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class ChatTemplate:
    """A compiled template. Immutable, and safe to use from many threads at once."""

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, max_rendered_chars: int = MAX_RENDERED_CHARS
    ) -> None:
        """Compile source; special_tokens (such as "bos_token") are its variables. Raises: ConfigError."""
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _GenerationBlock]
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _raise_exception
        try:
            self._template = environment.from_string(source)
        except (TemplateError, RecursionError) as error:
            raise ConfigError(f"the chat template cannot be compiled: {error}") from error
        self._special_tokens = dict(special_tokens)
        self._reserved = RESERVED | self._special_tokens.keys()
        self._max_rendered_chars = max_rendered_chars

    @classmethod
    def from_files(cls, files: ModelFiles) -> "ChatTemplate | None":
        """The model's template, None when it has none. Raises: ConfigError."""
        return None if files.chat_template is None else cls(files.chat_template, files.special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        now: datetime,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, object] = NOTHING,
        guard: Callable[[str], str] = str,
    ) -> str:
        """The conversation as the model's text.

        Args:
            messages: each with `role` and `content`: a string, or a list of {"type": "text"} parts, which are
                joined by newlines.
            now: what a template that writes today's date sees; the same on every try of a request.
            add_generation_prompt: end with the opening of the assistant's turn.
            continue_final_message: end inside the last message instead, right after its text.
            tools: function definitions as in the request, for templates that list them.
            variables: the request's own arguments for the template; a name that rendering owns is refused.
            guard: applied to each string that comes from the request (see `Tokenizer.guard`).

        Raises: InvalidRequest, with the template's own sentence when it refuses the conversation.
        """
        if clash := sorted(self._reserved & variables.keys()):
            raise InvalidRequest(f"{clash[0]} cannot be set by the request", param="chat_template_kwargs")
        if continue_final_message and add_generation_prompt:
            raise InvalidRequest(
                "add_generation_prompt and continue_final_message exclude each other", param="continue_final_message"
            )
        plain = _from_request(plain_messages(messages), guard)
        if continue_final_message:
            plain[-1]["content"] += END_MARK
        context = {
            **self._special_tokens,
            **_from_request(dict(variables), guard),
            "messages": plain,
            "tools": _from_request(list(tools), guard) if tools else None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            "strftime_now": now.strftime,
        }
        text = self._bounded(context)
        return _cut_at_mark(text) if continue_final_message else text

    def _bounded(self, context: dict[str, Any]) -> str:
        pieces: list[str] = []
        left_chars = self._max_rendered_chars
        try:
            for piece in self._template.generate(context):
                left_chars -= len(piece)
                if left_chars < 0:
                    raise InvalidRequest(
                        f"the conversation renders to more than {self._max_rendered_chars} characters",
                        param="messages",
                    )
                pieces.append(piece)
        except RENDER_ERRORS as error:
            reason = error.message if isinstance(error, TemplateError) else type(error).__name__
            raise InvalidRequest(f"the chat template refused the messages: {reason}", param="messages") from error
        return "".join(pieces)


class _GenerationBlock(Extension):
    """`{% generation %}` marks an assistant's turn for training; here it is only its body."""

    def __init__(self, environment: Environment) -> None:
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _cut_at_mark(text: str) -> str:
    """Text up to the end of the last message; trimmed there if the template trimmed it."""
    start = text.rfind(END_MARK.strip())
    if start < 0:
        raise InvalidRequest(
            "the template does not show the final message, so it cannot be continued", param="messages"
        )
    return text[:start] if text.startswith(END_MARK, start) else text[:start].rstrip()


def _from_request(value: Any, guard: Callable[[str], str]) -> Any:
    try:
        return _mapped(value, guard)
    except RecursionError as error:
        raise InvalidRequest("messages, tools or template arguments are nested too deeply", param="messages") from error


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    """A copy of plain JSON data with every string changed, names of fields excepted."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list | tuple):
        return [_mapped(item, change) for item in value]
    if isinstance(value, Mapping):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as templates expect it: not escaped for HTML, unlike Jinja's own filter."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)
