"""Chats through LangChain: whole, streamed, and bound by a schema. Run in the clients' environment: URL MODEL."""

import json
import sys

from langchain_openai import ChatOpenAI
from pydantic import BaseModel, ConfigDict


class Answer(BaseModel):
    model_config = ConfigDict(extra="forbid")
    yes: bool


def main() -> None:
    base_url, model = sys.argv[1:]
    chat = ChatOpenAI(base_url=base_url, api_key="none", model=model, temperature=0, max_tokens=24, max_retries=0)
    whole = chat.invoke("Say something.")
    streamed = "".join(str(chunk.content) for chunk in chat.stream("Say something."))
    bound = chat.with_structured_output(Answer, method="json_schema", strict=True).invoke("Yes or no?")
    print(json.dumps({"whole": whole.content, "streamed": streamed, "usage": whole.usage_metadata, "yes": bound.yes}))


if __name__ == "__main__":
    main()
