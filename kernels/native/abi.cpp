// The functions of api.h: check, then run. No exception leaves them.
#include "native/api.h"

#include <new>

#include "native/bf16.h"
#include "native/linear.h"
#include "native/pack.h"
#include "native/panel.h"
#include "native/quantise.h"
#include "native/step.h"

namespace {

template <class Run>
int32_t guarded(Run run) {
  try {
    return run();
  } catch (...) {  // memory is all that a step asks the system for
    return hr::ERROR_NO_MEMORY;
  }
}

// Activations as a product reads them.
template <class Element>
const Element* rounded(hr::Team& team, hr::Buffer& buffer, const float* x, int64_t tokens, int64_t width) {
  Element* out = buffer.at_least<Element>(static_cast<size_t>(tokens * width));
  team.add(tokens, [=](int64_t token, int) {
    for (int64_t k = 0; k < width; k += hr::LANES) {
      const int count = static_cast<int>(width - k);
      hr::store_as(out + token * width + k, hr::load_n(x + token * width + k, count), count);
    }
  });
  return out;
}

}  // namespace

HrContext* hr_open(int32_t threads) {
  if (threads < 1) return nullptr;
  try {
    return new HrContext(threads);
  } catch (...) {
    return nullptr;
  }
}

void hr_close(HrContext* context) { delete context; }

int64_t hr_packed_bytes(const HrLinear* weight) {
  if (int32_t error = hr::check_shape(*weight)) return error;
  return hr::packed_bytes(*weight);
}

int32_t hr_pack_linear(HrContext* context, const void* source, int32_t source_type, const HrLinear* weight,
                       void* packed) {
  if (!source || !packed || source_type < HR_SOURCE_FLOAT32 || source_type > HR_SOURCE_FLOAT16) {
    return hr::ERROR_BAD_SHAPE;
  }
  if (int32_t error = hr::check_shape(*weight)) return error;
  return guarded([=] {
    const hr::PackArgs args{source, source_type, weight, packed};
    context->team.begin();
    context->team.add(hr::pack_tiles(args), [args](int64_t tile, int) { hr::pack_tile(args, tile); });
    context->team.run();
    return hr::STEP_OK;
  });
}

int32_t hr_linear(HrContext* context, const HrLinear* weight, const float* x, int32_t tokens, const float* residual,
                  float* out) {
  if (tokens < 1 || !x || !out) return hr::ERROR_BAD_ROWS;
  if (int32_t error = hr::check_linear(*weight, weight->n, weight->k, weight->dtype)) return error;
  return guarded([=] {
    hr::Team& team = context->team;
    team.begin();
    const void* input = x;
    if (weight->dtype == HR_INT8) {
      const size_t bytes = static_cast<size_t>(tokens * hr::token_bytes(*weight));
      const hr::QuantiseArgs args{weight, x, context->own.at_least<char>(bytes), tokens};
      team.add(hr::quantise_tiles(args), [args](int64_t tile, int) { hr::quantise_tile(args, tile); });
      input = args.out;
    } else if (weight->dtype != HR_FLOAT32) {
      input = rounded<hr::Bf16>(team, context->own, x, tokens, weight->k);
    }
    const hr::LinearArgs args{weight, input, tokens, residual, out};
    team.add(hr::linear_tiles(args), [args](int64_t tile, int) { hr::linear_tile(args, tile); });
    team.run();
    return hr::STEP_OK;
  });
}

int32_t hr_step(HrContext* context, const HrModel* model, const HrPool* pool, const int32_t* ids, int32_t tokens,
                HrRow* rows, int32_t row_count, float* logits) {
  const hr::StepInput input{model, pool, ids, tokens, rows, row_count, logits};
  if (int32_t error = hr::check_model(*model, *pool)) return error;
  if (int32_t error = hr::check_rows(input)) return error;
  return guarded([&] {
    hr::run_step(*context, input);
    return hr::STEP_OK;
  });
}

void hr_watch(HrContext* context, int64_t* ns) { context->team.watch(ns); }

const char* hr_op(int32_t op) {
  static const char* const names[] = {"prepare", "embedding", "norm",    "qkv",    "rope_kv", "attention", "o",
                                      "gate_up", "swiglu",    "down",    "head",   "sample",  "publish"};
  static_assert(sizeof names / sizeof *names == HR_OPS);
  return op >= 0 && op < HR_OPS ? names[op] : nullptr;
}

const char* hr_error(int32_t code) {
  switch (code) {
    case hr::STEP_OK:
      return "no error";
    case hr::ERROR_NO_MEMORY:
      return "out of memory";
    case hr::ERROR_NO_MODEL:
      return "a weight, table or pool is missing";
    case hr::ERROR_BAD_SHAPE:
      return "shapes or types do not fit each other or these kernels";
    case hr::ERROR_BAD_SEGMENTS:
      return "segment bounds do not ascend from 0 to K, or cut a pair or four";
    case hr::ERROR_BAD_ROWS:
      return "rows do not cover the tokens in order";
    case hr::ERROR_BAD_ID:
      return "a token id is outside the vocabulary";
    case hr::ERROR_BAD_BLOCK:
      return "a block id is outside the pool";
    case hr::ERROR_TOO_LONG:
      return "a row is longer than the position tables";
    default:
      return "unknown error";
  }
}
