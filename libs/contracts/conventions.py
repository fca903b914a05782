"""Names of attributes and leaves in traces: OpenTelemetry's for generative AI where it has them, else `headrace.`.

https://opentelemetry.io/docs/specs/semconv/gen-ai/ ; its names are still marked as in development.
"""

# Attributes of spans

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
REQUEST_MODEL = "gen_ai.request.model"
MAX_TOKENS = "gen_ai.request.max_tokens"
TEMPERATURE = "gen_ai.request.temperature"
TOP_P = "gen_ai.request.top_p"
TOP_K = "gen_ai.request.top_k"
SEED = "gen_ai.request.seed"
STREAM = "gen_ai.request.stream"
RESPONSE_ID = "gen_ai.response.id"
FINISH_REASONS = "gen_ai.response.finish_reasons"
TIME_TO_FIRST_CHUNK = "gen_ai.response.time_to_first_chunk"
INPUT_TOKENS = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"

REQUEST_ID = "headrace.request_id"
CELL = "headrace.cell"
CLIENT_TRACEPARENT = "headrace.client.traceparent"
EXPORT_WANTED = "headrace.trace.wanted"  # whatever the ratio
STEP_NUMBER = "headrace.step"
STEP_COUNT = "headrace.steps"
BATCH_TOKENS = "headrace.batch_tokens"
CHUNK_TOKENS = "headrace.chunk_tokens"
KNOWN_PREFIX_TOKENS = "headrace.known_prefix_tokens"
WAIT_MS = "headrace.wait.{reason}_ms"

# Leaves: what a request is in at a moment. Waits are WAIT and their reason.

RECEIVE = "gateway.receive"
VALIDATE = "gateway.validate"
PUBLISH = "gateway.publish"
DETOKENISE = "gateway.detokenise"
WRITE = "gateway.write"
GRAMMAR = "tokenizer.grammar"
PULL = "tokenizer.pull"
TEMPLATE = "tokenizer.template"
ENCODE = "tokenizer.encode"
RETURN = "tokenizer.return"
HASH = "tokenizer.hash"
LOOK_UP = "tokenizer.look_up"
PUBLISH_SEQUENCE = "tokenizer.publish"
DECIDE = "scheduler.decide"
ORDER = "link.order"
REPORT = "link.report"
CHUNK = "prefill.chunk"
STEP = "decode.step"
STEPS = "decode.steps"  # exported: those of a stay as one span, linked to each
WORKER_STEP = "worker.step"  # exported: a trace of its own, linked to the stays in its batch
REPORTED = "worker.reported"  # in steps that its worker reported, and had no time to write down
BOUNDARY = "worker.boundary"
HAND_OVER = "hand_over."
HAND_OVER_REPORT = "hand_over.report"
HAND_OVER_ORDER = "hand_over.order"
FRAME = "tokens.frame"
WAIT = "wait."
WAIT_TOKENIZER = "wait.tokenizer"
WAIT_SCHEDULER = "wait.scheduler"
WAIT_CHUNK_BUDGET = "wait.chunk_budget"
