#include "native/sample.h"

#include <algorithm>

#include "native/candidates.h"
#include "native/philox.h"

namespace hr {
namespace {

bool is_greedy(const HrRow& row) { return row.temperature == 0.0; }
bool is_filtered(const HrRow& row) { return row.min_p > 0.0 || row.top_k > 0 || row.top_p < 1.0; }

int64_t segment_width(int32_t vocab) { return (vocab + VOCABULARY_SEGMENTS - 1) / VOCABULARY_SEGMENTS; }
int64_t segment_count(int32_t vocab) { return (vocab + segment_width(vocab) - 1) / segment_width(vocab); }

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
      sum = sum + exp(inside(first, scores_.raw(first)) - splat(top));
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

// The greatest perturbed score among what the filters keep.
int32_t draw_filtered(const RowScores& scores, const Noise& noise, float top, const HrRow& row) {
  thread_local std::vector<uint64_t> kept, spare;
  keep_candidates(scores, top, row, kept, spare);
  float best = -INFINITY;
  int32_t chosen = -1;
  for (size_t first = 0; first < kept.size(); first += LANES) {
    const size_t n = std::min<size_t>(LANES, kept.size() - first);
    float lanes[LANES] = {};
    uint32_t words[LANES] = {};
    for (size_t i = 0; i < n; ++i) {
      lanes[i] = Candidate::score(kept[first + i]);
      words[i] = philox_word(noise, static_cast<uint32_t>(Candidate::id(kept[first + i])));
    }
    store(lanes, load(lanes) + gumbel(load_words(words)));
    for (size_t i = 0; i < n; ++i) {
      const int32_t id = Candidate::id(kept[first + i]);
      if (chosen >= 0 && (lanes[i] < best || (lanes[i] == best && id > chosen))) continue;
      best = lanes[i];
      chosen = id;
    }
  }
  return chosen;
}

float log_probability(const SegmentResult* segments, int64_t count, float logit) {
  float top = segments[0].top, sum = segments[0].sum;
  float lanes[LANES];
  for (int64_t i = 1; i < count; ++i) {
    const float merged = std::max(top, segments[i].top);
    const F16 left = exp(splat(top - merged)), right = exp(splat(segments[i].top - merged));
    store(lanes, fma(splat(segments[i].sum), right, splat(sum) * left));
    top = merged;
    sum = lanes[0];
  }
  store(lanes, splat(logit - top) - log(splat(sum)));
  return lanes[0];
}

// The likeliest ids that are not banned, sorted by their scores, with log-probabilities of the raw logits.
void list_top(const float* logits, const RowScores& scores, const SegmentResult* segments, int64_t count, float top,
              const HrRow& row) {
  thread_local std::vector<uint64_t> kept, spare;
  HrRow filter{};
  filter.top_k = row.top_count;
  filter.top_p = 1.0;
  keep_candidates(scores, top, filter, kept, spare);
  std::sort(kept.begin(), kept.end());
  for (int32_t i = 0; i < row.top_count; ++i) {
    if (static_cast<size_t>(i) >= kept.size() || Candidate::score(kept[i]) == -INFINITY) {
      row.top[i] = {-1, -INFINITY};
    } else {
      const int32_t id = Candidate::id(kept[i]);
      row.top[i] = {id, log_probability(segments, count, logits[id])};
    }
  }
}

void finish_row(const float* logits, const RowScores& scores, const Noise& noise, const SegmentResult* segments,
                int64_t count, HrRow& row) {
  const SegmentResult* best = segments;
  for (int64_t i = 0; i < count; ++i) {
    if (!segments[i].is_finite) row.is_nan = 1;
    if (segments[i].best > best->best) best = segments + i;
  }
  if (row.is_nan || !row.draws) return;
  if (row.top_count) list_top(logits, scores, segments, count, best->best, row);
  if (best->best == -INFINITY) return;  // all ids are banned
  const bool has_filters = !is_greedy(row) && is_filtered(row);
  row.token = has_filters ? draw_filtered(scores, noise, best->best, row) : best->id;
  if (row.wants_logprob) row.logprob = log_probability(segments, count, logits[row.token]);
}

}  // namespace

int64_t sample_tiles(const SampleArgs& args) { return args.count * segment_count(args.vocab); }

void sample_tile(const SampleArgs& args, int64_t tile) {
  const int64_t segments = segment_count(args.vocab), width = segment_width(args.vocab);
  const int64_t index = tile / segments, segment = tile % segments;
  HrRow& row = *args.rows[index];
  SampleState& state = args.states[index];
  const float* logits = args.logits + int64_t{args.heads[index]} * args.vocab;
  const RowScores scores(logits, args.adjusted[index], args.vocab, row.temperature);
  const Noise noise{row.key, row.position};
  const int64_t end = std::min<int64_t>((segment + 1) * width, args.vocab);
  const Segment part(scores, static_cast<int32_t>(segment * width), static_cast<int32_t>(end));
  SegmentResult& result = state.segment[segment];
  if (row.draws && !is_greedy(row) && !is_filtered(row)) {
    part.search<true>(noise, result);
  } else {
    part.search<false>(noise, result);
  }
  if (row.draws && row.wants_logprob) result.sum = part.sum_about(result.top);
  if (state.done.fetch_add(1, std::memory_order_acq_rel) + 1 < segments) return;
  state.done.store(0, std::memory_order_relaxed);
  finish_row(logits, scores, noise, state.segment, segments, row);
}

}  // namespace hr
