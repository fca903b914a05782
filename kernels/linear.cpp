// A register tile is up to 8 tokens x 48 columns of float32 sums; a tile of work is one panel for up to 128 tokens.
//
// A sum depends on its own token and column alone, so how tokens are grouped never shows in the bits.
#include "native/linear.h"

#include <algorithm>

#include "native/ahead.h"
#include "native/kv_tile.h"
#include "native/linear_tile.h"
#include "native/quantise.h"
#include "native/scratch.h"
#include "native/swiglu.h"

namespace hr {
namespace {

constexpr int64_t TILE_TOKENS = 128;  // their inputs and a panel stay in the second-level cache
struct Segment {
  int64_t words;  // whole words of each operand
  bool has_half;  // and one whose upper member is none: the last of an odd number of bfloat16
  bool is_first;
};

template <int R, int V>
struct Sums {
  F16 sum[R][V];
};

template <class Class, int R, int V>
HR_INLINE void add_step(Sums<R, V>& sums, const uint32_t (&x)[R], const uint32_t* const (&w)[V], int64_t step) {
  U16 weights[V];
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) weights[v] = load_words(w[v] + step * PANEL_COLUMNS);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const U16 factor = splat_word(x[r]);
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) sums.sum[r][v] = Class::dot(sums.sum[r][v], factor, weights[v]);
  }
}

// y = s, or y = y + s, of one segment. `x` is the first token's part of it, tokens lie `stride` elements apart.
template <class Class, int R, int V, class Asking>
HR_INLINE void add_segment(const typename Class::Element* x, int64_t stride, const uint32_t* const (&w)[V], Ahead ahead,
                           const Segment& segment, float* y, int64_t y_stride) {
  Sums<R, V> sums{};
  uint32_t words[R];
  for (int64_t step = 0; step < segment.words; ++step) {
    Asking::at(ahead.at + step * ahead.step_bytes);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) std::memcpy(&words[r], x + r * stride + step * Class::MEMBERS, sizeof words[r]);
    add_step<Class>(sums, words, w, step);
  }
  if (segment.has_half) {
    for (int r = 0; r < R; ++r) words[r] = static_cast<uint32_t>(x[r * stride + segment.words * Class::MEMBERS]);
    add_step<Class>(sums, words, w, segment.words);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) {
      float* at = y + r * y_stride + v * LANES;
      store(at, segment.is_first ? sums.sum[r][v] : load(at) + sums.sum[r][v]);
    }
  }
}

template <class Class>
struct Plain {
  template <int R>
  struct Tokens {
    static void run(const TileArgs& args) {
      with_ask<R>(args.ahead, [&](auto ask) { run_asking<decltype(ask)>(args); });
    }
    template <class Asking>
    static void run_asking(const TileArgs& args) {
      constexpr int V = vectors_at_once(R), P = Class::MEMBERS;
      const HrLinear& weight = *args.weight;
      const int64_t last = panels_of(weight.n) * PANEL_VECTORS - 1;
      for (int v = 0; v < PANEL_VECTORS; v += V) {
        for (int32_t s = 0; s < weight.segments; ++s) {
          const int64_t begin = weight.cuts[s], width = weight.cuts[s + 1] - begin;
          const uint32_t* w[V];
          for (int i = 0; i < V; ++i) {
            w[i] = vector_at(weight, std::min(args.vector + v + i, last)) + begin / P * PANEL_COLUMNS;
          }
          add_segment<Class, R, V, Asking>(static_cast<const typename Class::Element*>(args.x) + begin, weight.k, w,
                                           args.ahead.from(begin / P), Segment{width / P, width % P != 0, s == 0},
                                           args.y + v * LANES, args.y_stride);
        }
      }
    }
  };
};

Multiply multiply_by(int32_t dtype, int64_t tokens) {
  switch (dtype) {
    case HR_INT8:
      return multiply_int8(tokens);
    case HR_INT8W:
      return multiply_int8w(tokens);
    case HR_BFLOAT16:
      return multiply_for<Plain<Bfloat16>::Tokens>(tokens);
    default:
      return multiply_for<Plain<Float32>::Tokens>(tokens);
  }
}

// The unpacked columns of an int8w weight where more than one group of tokens reads them, else null: same bits, less work.
const uint32_t* unpacked_for(const HrLinear& weight, int64_t tokens, int64_t vector, Buffer& buffer) {
  if (weight.dtype != HR_INT8W || tokens <= GROUP_TOKENS) return nullptr;
  auto* to = buffer.at_least<uint32_t>(static_cast<size_t>(unpacked_words(weight)));
  unpack_columns(weight, vector, to);
  return to;
}

// Calls `run(first, count, group, groups)` for the groups of tokens, one register tile each, of one of the blocks that the
// tokens are split into, all about equal.
template <class Run>
void each_group(int64_t tokens, int64_t block, Run run) {
  const int64_t blocks = ceil_div(tokens, TILE_TOKENS);
  const int64_t begin = tokens * block / blocks, count = tokens * (block + 1) / blocks - begin;
  const int64_t groups = ceil_div(count, GROUP_TOKENS);
  for (int64_t group = 0; group < groups; ++group) {
    const int64_t first = count * group / groups;
    run(begin + first, count * (group + 1) / groups - first, group, groups);
  }
}

int64_t tokens_in(int64_t tokens, int64_t block) {
  const int64_t blocks = ceil_div(tokens, TILE_TOKENS);
  return tokens * (block + 1) / blocks - tokens * block / blocks;
}

const char* token_at(const void* x, const HrLinear& weight, int64_t token) {
  return static_cast<const char*>(x) + token * token_bytes(weight);
}

// What finish_token() will read and write: it comes from memory while the products are summed.
void ask_for_token(const LinearArgs& args, int64_t token, int64_t column, int64_t columns) {
  const int64_t at = token * args.weight->n + column;
  for (int64_t c = 0; c < columns; c += LANES) {
    ask_to_write(args.out + at + c);
    if (args.residual) ask_for(args.residual + at + c);
  }
}

void finish_token(const LinearArgs& args, int64_t token, int64_t column, int64_t columns, float* y) {
  const int64_t at = token * args.weight->n + column;
  for (int64_t c = 0; c < columns; c += LANES) {
    const int lanes = static_cast<int>(std::min<int64_t>(LANES, columns - c));
    F16 sum = load(y + c);
    if (args.weight->bias) sum = sum + load_n(args.weight->bias + column + c, lanes);
    if (args.residual) sum = load_n(args.residual + at + c, lanes) + sum;
    store_n(args.out + at + c, sum, lanes);
  }
}

}  // namespace

int64_t linear_tiles(const LinearArgs& args) { return ceil_div(args.tokens, TILE_TOKENS) * panels_of(args.weight->n); }

void linear_tile(const LinearArgs& args, int64_t tile) {
  const HrLinear& weight = *args.weight;
  const int64_t panels = panels_of(weight.n), panel = tile % panels, column = panel * PANEL_COLUMNS;
  const int64_t columns = std::min<int64_t>(PANEL_COLUMNS, weight.n - column);
  thread_local Buffer buffer;
  const int64_t vector = panel * PANEL_VECTORS;
  const uint32_t* unpacked = unpacked_for(weight, tokens_in(args.tokens, tile / panels), vector, buffer);
  each_group(args.tokens, tile / panels, [&](int64_t first, int64_t count, int64_t group, int64_t groups) {
    alignas(64) float y[GROUP_TOKENS * PANEL_COLUMNS];
    for (int64_t r = 0; r < count; ++r) ask_for_token(args, first + r, column, columns);
    const Ahead ahead = ahead_of(weight, vector, group, groups);
    multiply_by(weight.dtype, count)({&weight, token_at(args.x, weight, first), vector, unpacked, y, PANEL_COLUMNS, ahead});
    for (int64_t r = 0; r < count; ++r) finish_token(args, first + r, column, columns, y + r * PANEL_COLUMNS);
  });
}

bool gate_up_fits(const HrLinear& weight) { return weight.n % (2 * LANES) == 0 && !weight.bias; }

int64_t gate_up_tiles(const GateUpArgs& args) {
  return ceil_div(args.tokens, TILE_TOKENS) * panels_of(args.weight->n / 2);
}

void gate_up_tile(const GateUpArgs& args, int64_t tile) {
  const HrLinear& weight = *args.weight;
  const int64_t width = weight.n / 2, panels = panels_of(width), panel = tile % panels, column = panel * PANEL_COLUMNS;
  const int64_t columns = std::min<int64_t>(PANEL_COLUMNS, width - column);
  const int64_t gates = panel * PANEL_VECTORS, ups = width / LANES + gates;
  const int64_t tokens = tokens_in(args.tokens, tile / panels);
  const int32_t dtype = input_dtype(weight.dtype);
  thread_local Buffer gate_buffer, up_buffer;
  const uint32_t* unpacked_gates = unpacked_for(weight, tokens, gates, gate_buffer);
  const uint32_t* unpacked_ups = unpacked_for(weight, tokens, ups, up_buffer);
  each_group(args.tokens, tile / panels, [&](int64_t first, int64_t count, int64_t group, int64_t groups) {
    alignas(64) float y[GROUP_TOKENS * 2 * PANEL_COLUMNS];  // gates, then ups
    const char* x = token_at(args.x, weight, first);
    const auto out_of = [&](int64_t r) {
      return static_cast<char*>(args.out) + ((first + r) * width + column) * element_bytes(dtype);
    };
    for (int64_t r = 0; r < count; ++r) {
      for (int64_t at = 0; at < columns * element_bytes(dtype); at += LINE_BYTES) ask_to_write(out_of(r) + at);
    }
    const Multiply multiply = multiply_by(weight.dtype, count);
    const Ahead to_gates = ahead_of(weight, gates, group, groups), to_ups = ahead_of(weight, ups, group, groups);
    multiply({&weight, x, gates, unpacked_gates, y, 2 * PANEL_COLUMNS, to_gates});
    multiply({&weight, x, ups, unpacked_ups, y + columns, 2 * PANEL_COLUMNS, to_ups});
    for (int64_t r = 0; r < count; ++r) {
      swiglu_tile({y + r * 2 * PANEL_COLUMNS, out_of(r), 1, static_cast<int32_t>(columns), dtype}, 0);
    }
  });
}

}  // namespace hr
