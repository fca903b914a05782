// Gate one half of a projection by the SiLU of the other, rounded for the product that reads it.
#pragma once
#include <cstdint>

namespace hr {

struct SwigluArgs {
  const float* gate_up;  // [tokens, 2 width]: gates, then ups
  void* out;             // [tokens, width] of dtype
  int32_t tokens, width;
  int32_t dtype;  // HrDtype
};

int64_t swiglu_tiles(const SwigluArgs&);
void swiglu_tile(const SwigluArgs&, int64_t tile);

}  // namespace hr
