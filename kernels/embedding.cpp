#include <algorithm>

#include "native/ahead.h"
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

const uint32_t* words_of(const HrLinear& table, int64_t id) { return vector_at(table, id / LANES) + id % LANES; }

// Row `next` is asked for meanwhile.
template <class Class>
void read_row(const HrLinear& table, int64_t id, int64_t next, float* out) {
  constexpr int P = Class::MEMBERS;
  const uint32_t *words = words_of(table, id), *ahead = words_of(table, next);
  for (int64_t k = 0; k < table.k; k += P, words += PANEL_COLUMNS, ahead += PANEL_COLUMNS) {
    ask_for(ahead);
    typename Class::Element pair[P];
    std::memcpy(pair, words, sizeof pair);
    for (int64_t i = 0; i < P && k + i < table.k; ++i) out[k + i] = widened(pair[i]);
  }
}

// Each integer times its group's scale.
void read_quantised_row(const HrLinear& table, int64_t id, float* out) {
  const bool is_int8 = table.dtype == HR_INT8;
  const int64_t column = id % PANEL_COLUMNS;
  const uint32_t* panel = static_cast<const uint32_t*>(table.data) + id / PANEL_COLUMNS * panel_words(table);
  each_group_of_inputs(table, [&](int32_t, int64_t begin, int64_t width, int64_t group) {
    const uint32_t* header = panel + group_offset(table.dtype, begin, group);
    const auto* integers = reinterpret_cast<const int8_t*>(header + header_words(table.dtype));
    float scale;
    std::memcpy(&scale, header + (is_int8 ? PANEL_COLUMNS : 0) + column, sizeof scale);
    for (int64_t i = 0; i < width; ++i) {
      const int64_t at = is_int8 ? (i / QUAD * PANEL_COLUMNS + column) * QUAD + i % QUAD : i * PANEL_COLUMNS + column;
      out[begin + i] = static_cast<float>(integers[at]) * scale;
    }
  });
}

}  // namespace

int64_t embedding_tiles(const EmbeddingArgs& args) { return ceil_div(args.tokens, TILE_TOKENS); }

void embedding_tile(const EmbeddingArgs& args, int64_t tile) {
  const int64_t first = tile * TILE_TOKENS, last = std::min(first + TILE_TOKENS, args.tokens);
  if (is_quantised(args.table->dtype)) {
    for (int64_t token = first; token < last; ++token) {
      read_quantised_row(*args.table, args.ids[token], args.out + token * args.table->k);
    }
    return;
  }
  with_class(args.table->dtype, [&](auto kind) {
    for (int64_t token = first; token < last; ++token) {
      const int64_t next = args.ids[std::min<int64_t>(token + 1, args.tokens - 1)];
      read_row<decltype(kind)>(*args.table, args.ids[token], next, args.out + token * args.table->k);
    }
  });
}

}  // namespace hr
