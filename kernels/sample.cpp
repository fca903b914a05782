#include "native/sample.h"

#include <algorithm>

#include "native/philox.h"
#include "native/segment.h"

namespace hr {
namespace {

bool is_greedy(const HrRow& row) { return row.temperature == 0.0; }
bool is_filtered(const HrRow& row) { return row.min_p > 0.0 || row.top_k > 0 || row.top_p < 1.0; }

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

void finish_row(const float* logits, const RowScores& scores, const Noise& noise, const SegmentResult* segments,
                int64_t count, HrRow& row) {
  const SegmentResult* best = segments;
  for (int64_t i = 0; i < count; ++i) {
    if (!segments[i].is_finite) row.is_nan = 1;
    if (segments[i].best > best->best) best = segments + i;
  }
  if (row.is_nan || !row.draws) return;
  if (row.top_count) {
    const RowScores raw(logits, nullptr, scores.vocab(), 0.0);
    list_top(logits, row.top_is_raw ? raw : scores, segments, count, row.top, row.top_count);
  }
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
