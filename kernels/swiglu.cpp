#include "native/swiglu.h"

#include <algorithm>

#include "native/kv_tile.h"
#include "native/panel.h"
#include "native/vec_math.h"

namespace hr {
namespace {

constexpr int TILE_COLUMNS = 512;
constexpr int FEW_TOKENS = 4;  // up to here columns are shared out, too

int64_t tiles_per_token(const SwigluArgs& args) {
  return args.tokens <= FEW_TOKENS ? (args.width + TILE_COLUMNS - 1) / TILE_COLUMNS : 1;
}

HR_INLINE F16 silu(const F16& g) { return g / (splat(1.0f) + exp(zero() - g)); }

// Three vectors at once: one alone would wait for each of its own steps.
template <class Element>
HR_INLINE void gate_panel(const float* gates, const float* ups, Element* out) {
  F16 gated[PANEL_VECTORS];
#pragma GCC unroll 3
  for (int v = 0; v < PANEL_VECTORS; ++v) gated[v] = silu(load(gates + v * LANES));
#pragma GCC unroll 3
  for (int v = 0; v < PANEL_VECTORS; ++v) store_as(out + v * LANES, gated[v] * load(ups + v * LANES), LANES);
}

template <class Element>
void gate(const float* gates, const float* ups, int width, Element* out) {
  int k = 0;
  for (; k + PANEL_COLUMNS <= width; k += PANEL_COLUMNS) gate_panel(gates + k, ups + k, out + k);
  for (; k < width; k += LANES) {
    store_as(out + k, silu(load_n(gates + k, width - k)) * load_n(ups + k, width - k), width - k);
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
