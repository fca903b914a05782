#include <algorithm>

#include "native/kv_tile.h"
#include "native/pack.h"
#include "native/panel.h"

namespace hr {
namespace {

constexpr int64_t TILE_TOKENS = 2;  // a row lies scattered over its panel: each word waits for memory

float widened(float x) { return x; }
float widened(Bf16 x) {
  const uint32_t bits = uint32_t{x} << 16;
  float out;
  std::memcpy(&out, &bits, sizeof out);
  return out;
}

template <class Class>
void read_row(const HrLinear& table, int64_t id, float* out) {
  constexpr int P = Class::MEMBERS;
  const uint32_t* words = vector_at(table, id / LANES) + id % LANES;
  for (int64_t k = 0; k < table.k; ++k) {
    typename Class::Element pair[P];
    std::memcpy(pair, words + k / P * PANEL_COLUMNS, sizeof pair);
    out[k] = widened(pair[k % P]);
  }
}

}  // namespace

int64_t embedding_tiles(const EmbeddingArgs& args) { return ceil_div(args.tokens, TILE_TOKENS); }

void embedding_tile(const EmbeddingArgs& args, int64_t tile) {
  const int64_t first = tile * TILE_TOKENS, last = std::min(first + TILE_TOKENS, args.tokens);
  with_class(args.table->dtype, [&](auto kind) {
    for (int64_t token = first; token < last; ++token) {
      read_row<decltype(kind)>(*args.table, args.ids[token], args.out + token * args.table->k);
    }
  });
}

}  // namespace hr
