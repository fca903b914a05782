"""What a model's makers recommend for sampling stands where a client says nothing. Pure."""

from collections.abc import Mapping

from services.gateway.schemas import Body


def recommend(body: Body, sampling: Mapping[str, float]) -> None:
    """Set the fields that the client left out; a beam search draws nothing, and takes none of them."""
    if body.use_beam_search:
        return
    for name, value in sampling.items():
        if getattr(body, name) is None:
            setattr(body, name, value)
