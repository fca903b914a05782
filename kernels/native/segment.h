// A row of logits in eight segments of its vocabulary: what is greatest in each, and log-probabilities from their sums.
#pragma once
#include <algorithm>
#include <vector>

#include "candidates.h"
#include "philox.h"
#include "sample.h"
#include "vec_math.h"

namespace hr {

inline int64_t segment_width(int32_t vocab) { return (vocab + VOCABULARY_SEGMENTS - 1) / VOCABULARY_SEGMENTS; }
inline int64_t segment_count(int32_t vocab) { return (vocab + segment_width(vocab) - 1) / segment_width(vocab); }

// The greatest value by lane, and the first id that had it.
struct Best {
  F16 value = splat(-INFINITY);
  U16 id = splat_word(0);

  HR_INLINE void offer(const F16& values, int32_t first) {
    const M16 better = values > value;
    value = select(better, values, value);
    id = select(better, lane_index() + splat_word(static_cast<uint32_t>(first)), id);
  }
  void reduce(float& most, int32_t& lowest) const {
    float values[LANES];
    uint32_t ids[LANES];
    store(values, value);
    store(ids, id);
    most = values[0];
    uint32_t chosen = ids[0];
    for (int i = 1; i < LANES; ++i) {
      if (values[i] < most || (values[i] == most && ids[i] >= chosen)) continue;
      most = values[i];
      chosen = ids[i];
    }
    lowest = static_cast<int32_t>(chosen);
  }
};

class Segment {
 public:
  Segment(const RowScores& scores, int32_t begin, int32_t end) : scores_(scores), begin_(begin), end_(end) {}

  // Greatest logit or score, or perturbed score; maximum and finiteness of the raw logits.
  template <bool WithNoise>
  void search(const Noise& noise, SegmentResult& result) const {
    Best best;
    F16 top = splat(-INFINITY);
    M16 odd = zero() != zero();
    for (int32_t block = begin_ / NOISE_BLOCK * NOISE_BLOCK; block < end_; block += NOISE_BLOCK) {
      U16 words[2];
      if constexpr (WithNoise) philox_words(noise, block, words);
#pragma GCC unroll 2
      for (int i = 0; i < 2; ++i) {
        const int32_t first = block + i * LANES;
        if (first >= end_ || first + LANES <= begin_) continue;
        F16 scores = scores_.at(first);
        if constexpr (WithNoise) scores = scores + gumbel(words[i]);
        best.offer(inside(first, scores), first);
        const F16 raw = scores_.raw(first);
        top = max(top, inside(first, raw));
        odd = odd | (inside(first, raw - raw, 0.0f) != zero());
      }
    }
    best.reduce(result.best, result.id);
    result.top = max_lanes(top);
    result.is_finite = !any(odd);
  }

  // Σ exp(logit − top) in sixteen lanes by id.
  float sum_about(float top) const {
    F16 sum = zero();
    for (int32_t first = begin_ / LANES * LANES; first < end_; first += LANES) {
      sum = sum + exp_to_88(inside(first, scores_.raw(first)) - splat(top));
    }
    return sum_lanes(sum);
  }

 private:
  HR_INLINE F16 inside(int32_t first, const F16& x, float otherwise = -INFINITY) const {
    if (first >= begin_ && first + LANES <= end_) return x;
    const U16 id = lane_index() + splat_word(static_cast<uint32_t>(first));
    const M16 mine = (id >= splat_word(static_cast<uint32_t>(begin_))) & (id < splat_word(static_cast<uint32_t>(end_)));
    return select(mine, x, splat(otherwise));
  }

  const RowScores& scores_;
  const int32_t begin_, end_;
};

inline float log_probability(const SegmentResult* segments, int64_t count, float logit) {
  float top = segments[0].top, sum = segments[0].sum;
  float lanes[LANES];
  for (int64_t i = 1; i < count; ++i) {
    const float merged = std::max(top, segments[i].top);
    const F16 left = exp_to_88(splat(top - merged)), right = exp_to_88(splat(segments[i].top - merged));
    store(lanes, fma(splat(segments[i].sum), right, splat(sum) * left));
    top = merged;
    sum = lanes[0];
  }
  store(lanes, splat(logit - top) - log(splat(sum)));
  return lanes[0];
}

// The likeliest ids by their scores, banned ones left out, with log-probabilities of the raw logits.
inline void list_top(const float* logits, const RowScores& scores, const SegmentResult* segments, int64_t segment_count,
                     HrTop* top, int32_t count) {
  thread_local std::vector<uint64_t> kept, spare;
  HrRow filter{};
  filter.top_k = count;
  filter.top_p = 1.0;
  keep_candidates(scores, 0.0f, filter, kept, spare);
  std::sort(kept.begin(), kept.end());
  for (int32_t i = 0; i < count; ++i) {
    if (static_cast<size_t>(i) >= kept.size() || Candidate::score(kept[i]) == -INFINITY) {
      top[i] = {-1, -INFINITY};
    } else {
      const int32_t id = Candidate::id(kept[i]);
      top[i] = {id, log_probability(segments, segment_count, logits[id])};
    }
  }
}

}  // namespace hr
