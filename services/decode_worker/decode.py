"""What makes a worker the decode worker: its name, and the span of a sequence's stay here.

Its orders hold residents that advance one token a step by themselves, and chunks of prompts too short to be worth a
hand-over.
"""

from libs.contracts import flow
from libs.engine.worker.serve import Role

ROLE = Role(service="decode_worker", name="decode", span=flow.DECODE)
