"""Which models this gateway serves, under which names, and what each of them allows."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from libs.contracts.errors import ModelNotFound
from libs.text.detokenize import TokenBytes
from services.gateway.limits import Limits


@dataclass(frozen=True, slots=True)
class Model:
    """One served model. `info` is what /tokenizer_info says of it."""

    limits: Limits
    tokenizer: TokenBytes
    info: Mapping[str, object]
    aliases: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What it is called on the wire and in answers, whichever of its names was asked for."""
        return self.limits.model


class Catalog:
    """Models by name and alias, in the order of the settings; read-only."""

    def __init__(self, models: Sequence[Model]) -> None:
        self._models = tuple(models)
        self._by_name = {name: model for model in models for name in (model.name, *model.aliases)}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(model.name for model in self._models)

    def model(self, name: str | None) -> Model:
        """The model of a name or an alias; the first where a request may leave it out. Raises ModelNotFound."""
        if name is None:
            return self._models[0]
        if (found := self._by_name.get(name)) is None:
            raise ModelNotFound(f"the model {name[:100]!r} does not exist", param="model")
        return found

    def of(self, name: str) -> Limits:
        """What the model of a name or an alias allows. Raises ModelNotFound."""
        return self.model(name).limits
