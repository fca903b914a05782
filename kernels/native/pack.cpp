#include "native/pack.h"

#include <algorithm>

#include "native/int8.h"
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
  const int64_t row = column * args.weight->k;
  for (int64_t step = 0; step < steps; ++step, to += PANEL_COLUMNS) {
    if (column >= args.weight->n) {
      *to = 0;
    } else if (args.weight->dtype == HR_BFLOAT16) {
      const int64_t even = row + 2 * step;
      const uint32_t odd = 2 * step + 1 < args.weight->k ? bfloat16_of(source_at(args, even + 1)) : 0u;
      *to = odd << 16 | bfloat16_of(source_at(args, even));
    } else {
      *to = bits_of(source_at(args, row + step));
    }
  }
}

// max |w| / 127; 0 where that is no normal number, NaN where a weight is not finite.
float weight_scale(const PackArgs& args, int64_t first, int64_t width) {
  uint32_t most = 0;
  for (int64_t i = 0; i < width; ++i) most = std::max(most, bits_of(source_at(args, first + i)) & 0x7FFFFFFFu);
  if (most >= 0x7F800000u) return of_bits(0x7FC00000u);
  const float scale = of_bits(most) / QUANTISED_MOST;
  return scale >= SMALLEST_SCALE ? scale : 0.0f;
}

// Adding 1.5 · 2^23 leaves the integer, rounded to nearest even, in the low bits.
int8_t quantised(float x, float scale) {
  if (!(scale > 0.0f)) return 0;
  return static_cast<int8_t>(bits_of(x / scale + ROUNDING_BIAS) & 0xFFu);
}

// One column of one group: integer i goes to `at(i)`. Returns their sum.
template <class At>
int32_t pack_integers(const PackArgs& args, int64_t first, int64_t width, float scale, At at) {
  int32_t sum = 0;
  for (int64_t i = 0; i < width; ++i) {
    const int8_t q = quantised(source_at(args, first + i), scale);
    *at(i) = q;
    sum += q;
  }
  return sum;
}

void pack_group(const PackArgs& args, int64_t column, int64_t c, int64_t begin, int64_t width, uint32_t* group) {
  const bool is_int8 = args.weight->dtype == HR_INT8;
  const int64_t first = column * args.weight->k + begin;
  const bool is_real = column < args.weight->n;
  const float scale = is_real ? weight_scale(args, first, width) : 0.0f;
  int8_t* integers = reinterpret_cast<int8_t*>(group + header_words(args.weight->dtype));
  const auto at = [=](int64_t i) {
    return is_int8 ? integers + (i / QUAD * PANEL_COLUMNS + c) * QUAD + i % QUAD : integers + i * PANEL_COLUMNS + c;
  };
  for (int64_t i = is_real ? width : 0; i < rounded_up(width, QUAD); ++i) *at(i) = 0;
  const int32_t sum = is_real ? pack_integers(args, first, width, scale, at) : 0;
  if (is_int8) group[c] = static_cast<uint32_t>(-INPUT_OFFSET * sum);
  group[(is_int8 ? PANEL_COLUMNS : 0) + c] = bits_of(scale);
}

}  // namespace

int64_t pack_tiles(const PackArgs& args) { return panels_of(args.weight->n); }

void pack_tile(const PackArgs& args, int64_t panel) {
  const HrLinear& weight = *args.weight;
  uint32_t* to = static_cast<uint32_t*>(args.packed) + panel * panel_words(weight);
  for (int64_t c = 0; c < PANEL_COLUMNS; ++c) {
    const int64_t column = panel * PANEL_COLUMNS + c;
    if (!is_quantised(weight.dtype)) {
      pack_column(args, column, panel_words(weight) / PANEL_COLUMNS, to + c);
      continue;
    }
    each_group_of_inputs(weight, [&](int32_t, int64_t begin, int64_t width, int64_t group) {
      pack_group(args, column, c, begin, width, to + group_offset(weight.dtype, begin, group));
    });
  }
}

}  // namespace hr
