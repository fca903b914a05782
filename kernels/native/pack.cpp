#include "native/pack.h"

#include <algorithm>

#include "native/kv_tile.h"
#include "native/panel.h"

namespace hr {
namespace {

float of_bits(uint32_t bits) {
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

uint32_t bits_of(float x) {
  uint32_t out;
  std::memcpy(&out, &x, sizeof out);
  return out;
}

// By integers, so that neither the level nor the thread's mode for denormals matters: weights are rounded once.
float of_half(uint16_t half) {
  const uint32_t sign = uint32_t(half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3FFu;
  if (exponent == 31) return of_bits(sign | 0x7F800000u | fraction << 13);
  if (exponent != 0) return of_bits(sign | (exponent + 112) << 23 | fraction << 13);
  const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
  return of_bits(sign | bits_of(magnitude));
}

uint16_t bfloat16_of(float x) {
  const uint32_t bits = bits_of(x);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

float source_at(const PackArgs& args, int64_t at) {
  switch (args.source_type) {
    case HR_SOURCE_BFLOAT16:
      return of_bits(uint32_t{static_cast<const uint16_t*>(args.source)[at]} << 16);
    case HR_SOURCE_FLOAT16:
      return of_half(static_cast<const uint16_t*>(args.source)[at]);
    default:
      return static_cast<const float*>(args.source)[at];
  }
}

// One column of a panel: `words` steps, PANEL_COLUMNS words apart.
void pack_column(const PackArgs& args, int64_t column, int64_t steps, uint32_t* to) {
  const int64_t row = column * args.k;
  for (int64_t step = 0; step < steps; ++step, to += PANEL_COLUMNS) {
    if (column >= args.n) {
      *to = 0;
    } else if (args.dtype == HR_BFLOAT16) {
      const int64_t even = row + 2 * step;
      const uint32_t odd = 2 * step + 1 < args.k ? bfloat16_of(source_at(args, even + 1)) : 0u;
      *to = odd << 16 | bfloat16_of(source_at(args, even));
    } else {
      *to = bits_of(source_at(args, row + step));
    }
  }
}

}  // namespace

int64_t pack_tiles(const PackArgs& args) { return panels_of(args.n); }

void pack_tile(const PackArgs& args, int64_t panel) {
  const int64_t steps = steps_of(args.k, args.dtype);
  uint32_t* to = static_cast<uint32_t*>(args.packed) + panel * steps * PANEL_COLUMNS;
  for (int64_t c = 0; c < PANEL_COLUMNS; ++c) pack_column(args, panel * PANEL_COLUMNS + c, steps, to + c);
}

}  // namespace hr
