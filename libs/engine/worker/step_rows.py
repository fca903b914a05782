"""The rows of a step under their earlier name; libs/engine/rows.py defines them."""

from libs.engine.rows import Sampled, SampleSpec, StepRow

__all__ = ["SampleSpec", "Sampled", "StepRow"]
