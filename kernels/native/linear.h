// Multiply activations by a packed weight, K cut into fixed segments whose sums are folded in order.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

// out = residual + (((s0 + s1) + …) + bias).
struct LinearArgs {
  const HrLinear* weight;
  const void* x;  // [tokens] of the weight's class: token_bytes(weight) each
  int64_t tokens;
  const float* residual;  // [tokens, N] or null; may be `out`
  float* out;             // [tokens, N]
};

int64_t linear_tiles(const LinearArgs&);
void linear_tile(const LinearArgs&, int64_t tile);

// A product with N = 2F whose halves are gates and ups, and the gate at once: the sums never leave the cache.
struct GateUpArgs {
  const HrLinear* weight;
  const void* x;  // [tokens] of the weight's class
  int64_t tokens;
  void* out;  // [tokens, F] of input_dtype(class)
};

bool gate_up_fits(const HrLinear&);  // where not: the product, then the gate
int64_t gate_up_tiles(const GateUpArgs&);
void gate_up_tile(const GateUpArgs&, int64_t tile);

}  // namespace hr
