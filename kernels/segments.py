"""Where sums are cut, the same for every family of kernels: constants of the numerics class. No torch here."""

DOWN_SEGMENTS = 8
CUT_MULTIPLE = 32
PIECE_TOKENS = 256  # of attention; a piece's sums depend on what lies in it and on nothing else


def even_cuts(inputs: int, segments: int = DOWN_SEGMENTS) -> tuple[int, ...]:
    """Bounds at floor(inputs * j / segments) rounded up to 32; segments that come out empty are left out."""
    bounds = [-(-(inputs * j // segments) // CUT_MULTIPLE) * CUT_MULTIPLE for j in range(segments + 1)]
    return tuple(sorted({min(bound, inputs) for bound in bounds}))
