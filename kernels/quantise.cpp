#include "native/quantise.h"

#include <algorithm>

#include "native/int8.h"

namespace hr {
namespace {

constexpr int64_t TILE_TOKENS = 4;

// Greatest magnitude; as an integer, so that NaN is above infinity and infinity above all else.
float most_of(const float* x, int64_t width) {
  U16 most = splat_word(0);
  for (int64_t k = 0; k < width; k += LANES) {
    const U16 magnitude = as_words(load_n(x + k, static_cast<int>(width - k))) & splat_word(0x7FFFFFFFu);
    most = select(most < magnitude, magnitude, most);
  }
  uint32_t lanes[LANES];
  store(lanes, most);
  const uint32_t bits = *std::max_element(lanes, lanes + LANES);
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

float quantise_segment(const float* x, int64_t width, uint8_t* out) {
  const float scale = most_of(x, width) / QUANTISED_MOST;
  if (!(scale >= SMALLEST_SCALE && scale < INFINITY)) {
    std::fill_n(out, width, uint8_t{INPUT_OFFSET});
    return scale < SMALLEST_SCALE ? 0.0f : NAN;
  }
  const F16 divisor = splat(scale);
  int64_t k = 0;
  for (; k + LANES <= width; k += LANES) store_input_bytes(out + k, load(x + k), divisor);
  if (k < width) {
    uint8_t last[LANES];
    store_input_bytes(last, load_n(x + k, static_cast<int>(width - k)), divisor);
    std::copy_n(last, width - k, out + k);
  }
  return scale;
}

}  // namespace

void quantise_token(const HrLinear& weight, const float* x, void* out) {
  auto* scales = static_cast<float*>(out);
  auto* bytes = static_cast<uint8_t*>(out) + scale_bytes(weight);
  for (int32_t s = 0; s < weight.segments; ++s) {
    const int64_t begin = weight.cuts[s];
    scales[s] = quantise_segment(x + begin, weight.cuts[s + 1] - begin, bytes + begin);
  }
  std::fill_n(bytes + weight.k, rounded_up(weight.k, LINE_BYTES) - weight.k, uint8_t{INPUT_OFFSET});
}

int64_t quantise_tiles(const QuantiseArgs& args) { return ceil_div(args.tokens, TILE_TOKENS); }

void quantise_tile(const QuantiseArgs& args, int64_t tile) {
  const int64_t first = tile * TILE_TOKENS, last = std::min(first + TILE_TOKENS, args.tokens);
  for (int64_t token = first; token < last; ++token) {
    quantise_token(*args.weight, args.x + token * args.weight->k,
                   static_cast<char*>(args.out) + token * token_bytes(*args.weight));
  }
}

}  // namespace hr
