// Tokens as a product reads them: plain elements, or, for the int8 class, integers and a scale for each segment.
#pragma once
#include <cstdint>

#include "api.h"
#include "panel.h"

namespace hr {

// Of an int8 token: its scales [segments], then, on a cache line, its integers plus 128, K bytes and up to a line of 128s.
inline int64_t scale_bytes(const HrLinear& weight) { return rounded_up(4 * int64_t{weight.segments}, LINE_BYTES); }
inline int64_t token_bytes(const HrLinear& weight) {
  if (weight.dtype == HR_INT8) return scale_bytes(weight) + rounded_up(weight.k, LINE_BYTES);
  return weight.k * element_bytes(weight.dtype);
}

// x [K] for an int8 weight. A segment that is not finite has scale NaN; one whose scale is no normal number has scale 0.
void quantise_token(const HrLinear& weight, const float* x, void* out);

struct QuantiseArgs {
  const HrLinear* weight;  // whose cuts are the segments
  const float* x;          // [tokens, K]
  void* out;               // [tokens], token_bytes(weight) each
  int64_t tokens;
};

int64_t quantise_tiles(const QuantiseArgs&);
void quantise_tile(const QuantiseArgs&, int64_t tile);

}  // namespace hr
