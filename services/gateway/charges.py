"""What requests cost their keys: one request each, and tokens, first estimated by the prompt and settled at the end."""

from libs.contracts.messages import Prompt
from libs.runtime.quota import Quota
from libs.runtime.quotas import Quotas
from services.gateway.keys import Caller
from services.gateway.quota_headers import RateLimited
from services.gateway.stream import Stream

BYTES_A_TOKEN = 4


def estimated_tokens(prompt: Prompt) -> int:
    """Of a prompt whose text nobody has encoded yet."""
    text_bytes = len(prompt.text.encode("utf-8", "surrogatepass")) + len(prompt.messages_json)
    return len(prompt.ids) + text_bytes // BYTES_A_TOKEN


class Charges:
    """Mutable: what was taken for each request that is under way."""

    def __init__(self, quotas: Quotas) -> None:
        self._quotas = quotas
        self._taken: dict[str, tuple[Caller, int]] = {}  # by request

    async def take(self, stream: Stream, caller: Caller) -> Quota | None:
        """What is left of the key's quota; None where it has none. Raises RateLimited."""
        if not caller.limits.are_any:
            return None
        tokens = estimated_tokens(stream.request.prompt)
        quota = await self._quotas.take(caller.key_id, caller.limits, 1, tokens)
        if not quota.is_granted:
            raise RateLimited(quota, 1, tokens)
        self._taken[stream.request_id] = caller, tokens
        return quota

    def settle(self, stream: Stream) -> None:
        """Take what it used beyond the estimate, or give back what it did not; once."""
        if stream.request_id in self._taken:
            caller, tokens = self._taken.pop(stream.request_id)
            used = stream.usage.prompt_tokens + stream.usage.completion_tokens
            self._quotas.correct(caller.key_id, caller.limits, used - tokens)
