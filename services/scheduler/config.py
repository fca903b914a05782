"""Scheduler settings. Units are in the names; there are no others."""

from typing import Literal

from pydantic import Field, SecretStr, field_validator

from libs.runtime.config import ServiceConfig
from libs.runtime.link import own_address
from services.scheduler.eviction import Caching
from services.scheduler.state import Policy


class Config(ServiceConfig):
    model: str = Field(min_length=1)  # the name that clients ask for
    cell: str = Field(default="c0", min_length=1)
    link_host: str = "127.0.0.1"  # where workers dial; they find it in the cell's record; auto: this host's address
    link_port: int = Field(default=0, ge=0, le=65535)  # 0 is a free one
    link_token: SecretStr  # what a worker has to show
    redis_url: str = ""  # empty: no prefix index
    redis_user: str = ""
    redis_password: SecretStr = SecretStr("")
    role: Literal["auto", "hybrid", "disaggregated"] = "auto"  # where prompts are computed
    disaggregate_min_tokens: int = Field(default=0, ge=0)  # under auto, from this many tokens to compute on; 0 is never
    max_chunk_tokens: int = Field(default=512, ge=16)  # prompt tokens of one step
    chunk_target_ms: float = Field(default=250.0, gt=0)  # how long a step may take where nobody decodes
    itl_target_ms: float = Field(default=50.0, gt=0)  # and how long where streams wait for their next token
    max_waiting: int = Field(default=1024, ge=1)  # requests taken from the queue, running ones included
    max_running: int = Field(default=64, ge=1)
    preemption: Literal["cost", "swap", "recompute"] = "cost"  # how who has to give way does
    prefix_caching: bool = True  # off: nothing of one request is used for another
    cache_floor: float = Field(default=0.1, ge=0, le=0.5)  # of the KV pool: what a tenant's cached prefixes keep
    cache_ceiling: float = Field(
        default=0.5, ge=0.5, le=1
    )  # of the KV pool: what a tenant has cached beyond goes first
    event_log_path: str = ""  # gets every event, prompts included, a file a term; empty: none

    @field_validator("link_host")
    @classmethod
    def _link_host_is_found(cls, value: str) -> str:
        return own_address() if value == "auto" else value

    @field_validator("link_token")
    @classmethod
    def _link_token_is_set(cls, value: SecretStr) -> SecretStr:
        if not value.get_secret_value():
            raise ValueError("must not be empty")
        return value

    @property
    def policy(self) -> Policy:
        return Policy(
            cell=self.cell,
            model=self.model,
            role=self.role,
            disaggregate_min_tokens=self.disaggregate_min_tokens,
            max_chunk_tokens=self.max_chunk_tokens,
            chunk_target_s=self.chunk_target_ms / 1000,
            itl_target_s=self.itl_target_ms / 1000,
            max_running=self.max_running,
            preemption=self.preemption,
            caching=Caching(self.prefix_caching, self.cache_floor, self.cache_ceiling),
        )
