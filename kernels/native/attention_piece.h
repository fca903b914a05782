// One piece of attention: up to twelve query rows of one kv head against up to 256 positions.
//
// Scores, their maximum, exponentials and weighted values stay in registers and the first-level cache. The class is a
// parameter, and so is the number of rows, which sets how many accumulators hide the latency of a dot product.
#pragma once
#include <algorithm>
#include <cstdint>

#include "ahead.h"
#include "kv_tile.h"
#include "vec_math.h"

namespace hr {

constexpr int PIECE_TOKENS = 256;
constexpr int PIECE_GROUPS = PIECE_TOKENS / LANES;
#if defined(__AVX512F__)
constexpr int MAX_ROWS = 12, ACCUMULATORS = 24;
#elif defined(__AVX2__)
constexpr int MAX_ROWS = 6, ACCUMULATORS = 6;
#else
constexpr int MAX_ROWS = 4, ACCUMULATORS = 4;
#endif
constexpr int ROW_WORDS = PIECE_TOKENS + LANES;  // not a power of two: rows would share cache sets

// Rows beyond the item's own, up to the width of a kernel, repeat the last one's bounds over zero queries.
struct QueryRows {
  uint32_t words[MAX_ROWS * ROW_WORDS];
  int first_seen[MAX_ROWS], end_seen[MAX_ROWS];  // absolute positions [first, end)
};

struct PieceTiles {
  int start;                             // absolute position of group 0
  int first_group = 0, end_group = 0;    // groups of 16 positions that any row sees
  int end;                               // absolute; at and past it no row sees anything, and slots may hold anything
  const uint32_t* keys[PIECE_GROUPS];    // first word of the group in its K tile, rows T words apart
  const uint32_t* values[PIECE_GROUPS];  // in its V tile, rows D words apart
};

static_assert(MAX_ROWS <= LANES);
struct PieceResult {
  float top[LANES] = {};
  float sum[LANES] = {};  // 0: the row sees nothing here; else at least 1, the exponential of the maximum, or NaN
  float o[MAX_ROWS * MAX_HEAD_DIM];  // [rows, D]
};

constexpr int FEW_ROWS = 4;  // up to here memory is the limit: what is read next is asked for early

constexpr int columns_for(int rows) { return rows * 4 <= ACCUMULATORS ? 4 : rows * 2 <= ACCUMULATORS ? 2 : 1; }

template <class Class, int R>
class PieceKernel {
 public:
  // Keys of `next`, a piece to come, are asked for while the values of this one are read.
  PieceKernel(const QueryRows& rows, const PieceTiles& tiles, const PieceTiles& next, int block_tokens, int head_dim,
              float scale)
      : rows_(rows), tiles_(tiles), next_(next), block_tokens_(block_tokens), head_dim_(head_dim), scale_(scale) {}

  void run(PieceResult& result) {
    for (int r = 0; r < R; ++r) top_[r] = splat(-INFINITY);
    constexpr int C = columns_for(R);
    int group = tiles_.first_group;
    for (; group + C <= tiles_.end_group; group += C) score<C>(group);
    for (; group < tiles_.end_group; ++group) score<1>(group);
    for (int r = 0; r < R; ++r) weigh(r, result);
    int column = 0;
    for (; column + C * LANES <= head_dim_; column += C * LANES) gather<C>(column, result.o);
    for (; column < head_dim_; column += LANES) gather<1>(column, result.o);
  }

 private:
  // scale · q · k of C groups; hidden ones are −∞ whatever lies there.
  template <int C>
  HR_INLINE void score(int group) {
    F16 sum[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) sum[r][c] = zero();
    }
    const int steps = head_dim_ / Class::MEMBERS;
    const int ahead = std::min(group + C, tiles_.end_group - C);
    for (int step = 0; step < steps; ++step) {
      if constexpr (R <= FEW_ROWS) {
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) {
          ask_for(tiles_.keys[ahead + c] + step * block_tokens_);
          ask_for(tiles_.values[group + c] + step * LANES);  // as many lines as a group of K has
        }
      }
      U16 k[C];
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) k[c] = load_words(tiles_.keys[group + c] + step * block_tokens_);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const U16 q = splat_word(rows_.words[r * ROW_WORDS + step]);
#pragma GCC unroll 4
        for (int c = 0; c < C; ++c) sum[r][c] = Class::dot(sum[r][c], q, k[c]);
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) keep(r, group + c, sum[r][c] * splat(scale_));
    }
  }

  HR_INLINE void keep(int r, int group, F16 scores) {
    const int at = tiles_.start + group * LANES;
    if (rows_.first_seen[r] > at || rows_.end_seen[r] < at + LANES) {
      const U16 position = lane_index() + splat_word(at);
      const M16 seen = (position >= splat_word(rows_.first_seen[r])) & (position < splat_word(rows_.end_seen[r]));
      scores = select(seen, scores, splat(-INFINITY));
    }
    top_[r] = max(top_[r], scores);
    store(weights_ + r * ROW_WORDS + group * LANES, scores);
  }

  // Scores become exponentials about the row's maximum, rounded for the product with V, in the memory they lay in.
  HR_INLINE void weigh(int r, PieceResult& result) {
    using Element = typename Class::Element;
    const bool is_blind = std::max(rows_.first_seen[r], tiles_.start) >= std::min(rows_.end_seen[r], tiles_.end);
    const float top = is_blind ? 0.0f : max_lanes(top_[r]);  // about 0, exponentials of −∞ are 0
    uint32_t* row = weights_ + r * ROW_WORDS;
    Element* rounded = reinterpret_cast<Element*>(row);
    F16 sum = zero();
    for (int group = tiles_.first_group; group < tiles_.end_group; ++group) {
      const F16 p = exp_to_88(as_float(load_words(row + group * LANES)) - splat(top));
      sum = sum + p;
      store_as(rounded + group * LANES, p, LANES);
    }
    result.top[r] = top;
    result.sum[r] = sum_lanes(sum);
  }

  // o = Σ p · V over C · 16 dims, positions ascending. Past `end` nothing is read; half a word is cleared there.
  template <int C>
  HR_INLINE void gather(int column, float* o) {
    constexpr int P = Class::MEMBERS;
    F16 sum[R][C];
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) sum[r][c] = zero();
    }
    for (int group = tiles_.first_group; group < tiles_.end_group; ++group) {
      const int positions = std::min(LANES, tiles_.end - tiles_.start - group * LANES);
      const uint32_t* v = tiles_.values[group] + column;
      const uint32_t* p = weights_ + group * (LANES / P);
      for (int word = 0; word < positions / P; ++word) {
        if constexpr (R <= FEW_ROWS) ask_for_next<C>(group - tiles_.first_group, column / P + word * C);
        add<C>(sum, p + word, v + word * head_dim_, ~0u);
      }
      if (positions % P) add<C>(sum, p + positions / P, v + positions / P * head_dim_, 0xFFFFu);
    }
    for (int r = 0; r < R; ++r) {
      for (int c = 0; c < C; ++c) {
        store(o + r * head_dim_ + column + c * LANES, sum[r][c] + zero());  // −0 becomes +0, as a longer sum leaves it
      }
    }
  }

  // C lines of the keys of one of the next piece's groups.
  template <int C>
  HR_INLINE void ask_for_next(int group, int line) {
    if (next_.first_group + group >= next_.end_group) return;
    const uint32_t* keys = next_.keys[next_.first_group + group];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) ask_for(keys + (line + c) * block_tokens_);
  }

  template <int C>
  HR_INLINE void add(F16 (&sum)[R][C], const uint32_t* p, const uint32_t* v, uint32_t kept_bits) {
    U16 values[C];
#pragma GCC unroll 4
    for (int c = 0; c < C; ++c) values[c] = load_words(v + c * LANES) & splat_word(kept_bits);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const U16 weight = splat_word(p[r * ROW_WORDS]);
#pragma GCC unroll 4
      for (int c = 0; c < C; ++c) sum[r][c] = Class::dot(sum[r][c], weight, values[c]);
    }
  }

  const QueryRows& rows_;
  const PieceTiles &tiles_, &next_;
  const int block_tokens_, head_dim_;
  const float scale_;
  F16 top_[R];
  alignas(64) uint32_t weights_[R * ROW_WORDS];  // scores, then exponentials
};

}  // namespace hr
