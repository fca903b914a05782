"""What makes a worker the prefill worker: its name, and the span of a prompt's stay here.

Its orders hold residents with `until` = 1: chunks of their prompts run, the first token is drawn and sent, and the
sequence goes on elsewhere, in the same blocks.
"""

from libs.contracts import flow
from libs.engine.worker.serve import Role

ROLE = Role(service="prefill_worker", name="prefill", span=flow.PREFILL)
