// Products by quantised weights. A group's sum is exact (int8) or one chain of FMAs as in the bfloat16 class (int8w); it
// becomes float32 with its scales, and groups, then segments, are added from the left.
#include <cstring>

#include "native/ahead.h"
#include "native/bf16.h"
#include "native/int8.h"
#include "native/linear_tile.h"
#include "native/quantise.h"

namespace hr {
namespace {

// Up to V vectors of one panel or two, from one group on.
template <int V>
struct GroupColumns {
  const uint32_t* header[V];
  const int8_t* bytes[V];
};

template <int V>
HR_INLINE GroupColumns<V> columns_at(const HrLinear& weight, int64_t vector, int64_t begin, int64_t group) {
  GroupColumns<V> out;
  const int64_t last = panels_of(weight.n) * PANEL_VECTORS - 1, words = panel_words(weight);
  for (int v = 0; v < V; ++v) {
    const int64_t at = std::min(vector + v, last), column = at % PANEL_VECTORS * LANES;
    const uint32_t* first =
        static_cast<const uint32_t*>(weight.data) + at / PANEL_VECTORS * words + group_offset(weight.dtype, begin, group);
    const uint32_t* integers = first + header_words(weight.dtype);
    out.header[v] = first + column;
    out.bytes[v] = reinterpret_cast<const int8_t*>(integers) + (weight.dtype == HR_INT8 ? QUAD : 1) * column;
  }
  return out;
}

HR_INLINE F16 load_scale(const uint32_t* p) { return as_float(load_words(p)); }

// Adds a group's part, value(r, v), to the sum of its segment, and a complete segment's to y.
template <int R, int V, class Value>
HR_INLINE void take_group(const TileArgs& args, int32_t segment, int64_t begin, int64_t width, int v0, float* open,
                          Value value) {
  const int32_t* cuts = args.weight->cuts;
  const bool opens = begin == cuts[segment], closes = begin + width == cuts[segment + 1];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) {
      float* part = open + (r * V + v) * LANES;
      float* y = args.y + r * args.y_stride + (v0 + v) * LANES;
      F16 sum = value(r, v);
      if (!opens) sum = load(part) + sum;
      if (!closes) {
        store(part, sum);
      } else {
        store(y, segment == 0 ? sum : load(y) + sum);
      }
    }
  }
}

template <class Asking, int R, int V>
HR_INLINE void add_quads(U16 (&sums)[R][V], const uint8_t* x, int64_t stride, const GroupColumns<V>& w, Ahead ahead,
                         int64_t steps) {
  for (int64_t step = 0; step < steps; ++step) {
    Asking::at(ahead.at + step * ahead.step_bytes);
    Quads weights[V];
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) {
      weights[v] = weight_quads(load_words(reinterpret_cast<const uint32_t*>(w.bytes[v]) + step * QUAD_WORDS));
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      uint32_t word;
      std::memcpy(&word, x + r * stride + step * QUAD, sizeof word);
      const Quads factor = input_quads(word);
#pragma GCC unroll 3
      for (int v = 0; v < V; ++v) sums[r][v] = dot_quads(sums[r][v], factor, weights[v]);
    }
  }
}

template <int R>
struct Int8Tokens {
  static constexpr int V = vectors_at_once(R);

  static void run(const TileArgs& args) {
    with_ask<R>(args.ahead, [&](auto ask) {
      for (int v = 0; v < PANEL_VECTORS; v += V) run_columns<decltype(ask)>(args, v);
    });
  }

  template <class Asking>
  static void run_columns(const TileArgs& args, int v0) {
    const HrLinear& weight = *args.weight;
    const int64_t stride = token_bytes(weight);
    const auto* scales = static_cast<const char*>(args.x);
    const auto* bytes = static_cast<const uint8_t*>(args.x) + scale_bytes(weight);
    alignas(64) float open[R * V * LANES];
    each_group_of_inputs(weight, [&](int32_t segment, int64_t begin, int64_t width, int64_t group) {
      const GroupColumns<V> w = columns_at<V>(weight, args.vector + v0, begin, group);
      U16 sums[R][V];
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 3
        for (int v = 0; v < V; ++v) sums[r][v] = load_words(w.header[v]);
      }
      add_quads<Asking>(sums, bytes + begin, stride, w, args.ahead.from(begin / QUAD), ceil_div(width, QUAD));
      take_group<R, V>(args, segment, begin, width, v0, open, [&](int r, int v) __attribute__((always_inline)) {
        float scale;
        std::memcpy(&scale, scales + r * stride + segment * sizeof scale, sizeof scale);
        return float_of_integers(sums[r][v]) * (splat(scale) * load_scale(w.header[v] + PANEL_COLUMNS));
      });
    });
  }
};

template <int R, int V>
HR_INLINE void add_pairs(F16 (&sums)[R][V], const Bf16* x, int64_t stride, const U16 (&weights)[V], bool has_odd) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    uint32_t word = 0;
    if (has_odd) {
      std::memcpy(&word, x + r * stride, sizeof word);
    } else {
      word = x[r * stride];
    }
    const U16 factor = splat_word(word);
#pragma GCC unroll 3
    for (int v = 0; v < V; ++v) sums[r][v] = dot_pairs(sums[r][v], factor, weights[v]);
  }
}

// Pair `step` of a group; the partner of an odd last K is a zero of the padding.
template <int V>
HR_INLINE void load_pairs(U16 (&weights)[V], const GroupColumns<V>& w, int64_t step) {
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) {
    const int8_t* even = w.bytes[v] + 2 * step * PANEL_COLUMNS;
    weights[v] = dequantised_pairs(even, even + PANEL_COLUMNS);
  }
}
template <int V>
HR_INLINE void load_unpacked(U16 (&weights)[V], const uint32_t* unpacked, int v0, int64_t step) {
#pragma GCC unroll 3
  for (int v = 0; v < V; ++v) weights[v] = load_words(unpacked + step * PANEL_COLUMNS + (v0 + v) * LANES);
}

template <int R>
struct Int8wTokens {
  static constexpr int V = vectors_at_once(R);

  static void run(const TileArgs& args) {
    with_ask<R>(args.ahead, [&](auto ask) {
      for (int v = 0; v < PANEL_VECTORS; v += V) {
        if (args.unpacked) {
          run_columns<true, decltype(ask)>(args, v);
        } else {
          run_columns<false, decltype(ask)>(args, v);
        }
      }
    });
  }

  template <bool IS_UNPACKED, class Asking>
  static void run_columns(const TileArgs& args, int v0) {
    const HrLinear& weight = *args.weight;
    const auto* x = static_cast<const Bf16*>(args.x);
    alignas(64) float open[R * V * LANES];
    each_group_of_inputs(weight, [&](int32_t segment, int64_t begin, int64_t width, int64_t group) {
      const GroupColumns<V> w = columns_at<V>(weight, args.vector + v0, begin, group);
      F16 sums[R][V]{};
      U16 weights[V];
      int64_t step = 0;
      const Ahead ahead = args.ahead.from(begin / 2);
      const auto load_step = [&]() __attribute__((always_inline)) {
        Asking::at(ahead.at + step * ahead.step_bytes);
        if constexpr (IS_UNPACKED) {
          load_unpacked<V>(weights, args.unpacked, v0, begin / 2 + step);
        } else {
          load_pairs<V>(weights, w, step);
        }
      };
      for (; step < width / 2; ++step) {
        load_step();
        add_pairs<R, V>(sums, x + begin + 2 * step, weight.k, weights, true);
      }
      if (width % 2 != 0) {
        load_step();
        add_pairs<R, V>(sums, x + begin + 2 * step, weight.k, weights, false);
      }
      take_group<R, V>(args, segment, begin, width, v0, open, [&](int r, int v) __attribute__((always_inline)) {
        return sums[r][v] * load_scale(w.header[v]);
      });
    });
  }
};

}  // namespace

Multiply multiply_int8(int64_t tokens) { return multiply_for<Int8Tokens>(tokens); }
Multiply multiply_int8w(int64_t tokens) { return multiply_for<Int8wTokens>(tokens); }

int64_t unpacked_words(const HrLinear& weight) { return ceil_div(weight.k, 2) * PANEL_COLUMNS; }

void unpack_columns(const HrLinear& weight, int64_t vector, uint32_t* to) {
  for (int v = 0; v < PANEL_VECTORS; ++v) {
    each_group_of_inputs(weight, [&](int32_t, int64_t begin, int64_t width, int64_t group) {
      const GroupColumns<1> w = columns_at<1>(weight, vector + v, begin, group);
      for (int64_t step = 0; step < ceil_div(width, 2); ++step) {
        U16 pairs[1];
        load_pairs<1>(pairs, w, step);
        store(to + (begin / 2 + step) * PANEL_COLUMNS + v * LANES, pairs[0]);
      }
    });
  }
}

}  // namespace hr
