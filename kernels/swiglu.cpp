#include "native/swiglu.h"

#include <algorithm>

#include "native/kv_tile.h"
#include "native/vec_math.h"

namespace hr {
namespace {

constexpr int TILE_COLUMNS = 512;
constexpr int FEW_TOKENS = 4;  // up to here columns are shared out, too

int64_t tiles_per_token(const SwigluArgs& args) {
  return args.tokens <= FEW_TOKENS ? (args.width + TILE_COLUMNS - 1) / TILE_COLUMNS : 1;
}

template <class Element>
void gate(const float* gates, const float* ups, int width, Element* out) {
  const F16 one = splat(1.0f);
  for (int k = 0; k < width; k += LANES) {
    const F16 g = load_n(gates + k, width - k);
    const F16 silu = g / (one + exp(zero() - g));
    store_as(out + k, silu * load_n(ups + k, width - k), width - k);
  }
}

}  // namespace

int64_t swiglu_tiles(const SwigluArgs& args) { return args.tokens * tiles_per_token(args); }

void swiglu_tile(const SwigluArgs& args, int64_t tile) {
  const int64_t pieces = tiles_per_token(args);
  const int64_t token = tile / pieces;
  const int64_t first = tile % pieces * TILE_COLUMNS;
  const int64_t width = pieces == 1 ? args.width : std::min<int64_t>(TILE_COLUMNS, args.width - first);
  const float* gates = args.gate_up + token * 2 * args.width + first;
  with_class(args.dtype, [&](auto kind) {
    using Element = typename decltype(kind)::Element;
    Element* out = static_cast<Element*>(args.out) + token * args.width + first;
    gate(gates, gates + args.width, static_cast<int>(width), out);
  });
}

}  // namespace hr
