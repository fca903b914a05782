#include "native/rms_norm.h"

#include <algorithm>
#include <cmath>

#include "native/kv_tile.h"
#include "native/quantise.h"
#include "native/scratch.h"

namespace hr {
namespace {

constexpr int TILE_TOKENS = 4;

template <class Element>
void normalise(const float* x, const float* weight, float eps, int width, Element* out) {
  F16 squares = zero();
  for (int k = 0; k < width; k += LANES) {
    const F16 part = load_n(x + k, width - k);
    squares = fma(part, part, squares);
  }
  const float mean = sum_lanes(squares) / static_cast<float>(width);
  const F16 factor = splat(1.0f / std::sqrt(mean + eps));
  for (int k = 0; k < width; k += LANES) {
    const F16 y = load_n(x + k, width - k) * factor * load_n(weight + k, width - k);
    store_as(out + k, y, width - k);
  }
}

}  // namespace

void rms_norm_row(const float* x, const float* weight, float eps, int width, float* out) {
  normalise(x, weight, eps, width, out);
}

int64_t rms_norm_tiles(const RmsNormArgs& args) { return (args.tokens + TILE_TOKENS - 1) / TILE_TOKENS; }

void rms_norm_tile(const RmsNormArgs& args, int64_t tile) {
  const int64_t first = tile * TILE_TOKENS;
  const int64_t last = std::min<int64_t>(first + TILE_TOKENS, args.tokens);
  if (args.reader) {
    thread_local Buffer buffer;
    auto* y = buffer.at_least<float>(static_cast<size_t>(args.width));
    for (int64_t token = first; token < last; ++token) {
      const int64_t row = args.rows ? args.rows[token] : token;
      normalise(args.x + row * args.width, args.weight, args.eps, args.width, y);
      quantise_token(*args.reader, y, static_cast<char*>(args.out) + token * token_bytes(*args.reader));
    }
    return;
  }
  with_class(args.dtype, [&](auto kind) {
    using Element = typename decltype(kind)::Element;
    for (int64_t token = first; token < last; ++token) {
      const int64_t row = args.rows ? args.rows[token] : token;
      Element* out = static_cast<Element*>(args.out) + token * args.width;
      normalise(args.x + row * args.width, args.weight, args.eps, args.width, out);
    }
  });
}

}  // namespace hr
