#include "native/score.h"

#include "native/segment.h"

namespace hr {

void score_tile(const ScoreArgs& args, int64_t tile) {
  const ScoreItem& item = args.items[tile];
  if (__atomic_load_n(&item.row->is_nan, __ATOMIC_RELAXED)) return;
  const float* logits = args.logits + tile * args.vocab;
  const RowScores raw(logits, nullptr, args.vocab, 0.0);
  const int64_t count = segment_count(args.vocab), width = segment_width(args.vocab);
  SegmentResult segments[VOCABULARY_SEGMENTS];
  for (int64_t i = 0; i < count; ++i) {
    const int64_t end = std::min<int64_t>((i + 1) * width, args.vocab);
    const Segment part(raw, static_cast<int32_t>(i * width), static_cast<int32_t>(end));
    part.search<false>({}, segments[i]);
    if (!segments[i].is_finite) return __atomic_store_n(&item.row->is_nan, 1, __ATOMIC_RELAXED);
    segments[i].sum = part.sum_about(segments[i].top);
  }
  HrScore& score = *item.score;
  const float logit = logits[score.id];
  score.logprob = log_probability(segments, count, logit);
  score.rank = 1;
  for (int32_t i = 0; i < args.vocab; ++i) score.rank += logits[i] > logit;
  if (score.top_count) list_top(logits, raw, segments, count, score.top, score.top_count);
}

}  // namespace hr
