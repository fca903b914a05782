// Scale tokens to unit root mean square, then by a learned weight, rounded for the product that reads them.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

struct RmsNormArgs {
  const float* x;       // [rows, width]
  const int32_t* rows;  // [tokens]: which rows of x to take; null: the first `tokens`
  const float* weight;  // [width]
  void* out;            // [tokens, width] of dtype, or of `reader`
  int32_t tokens, width;
  float eps;
  int32_t dtype;           // HrDtype; float32 for a reader
  const HrLinear* reader;  // the int8 weight to quantise for, or null
};

// One row of [width], in float32; `out` may be `x`.
void rms_norm_row(const float* x, const float* weight, float eps, int width, float* out);

int64_t rms_norm_tiles(const RmsNormArgs&);
void rms_norm_tile(const RmsNormArgs&, int64_t tile);

}  // namespace hr
