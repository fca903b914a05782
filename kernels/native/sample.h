// Draw a token from each row of logits, and its log-probability: eight vocabulary segments a row, combined in order.
#pragma once
#include <atomic>
#include <cstdint>

#include "api.h"

namespace hr {

constexpr int VOCABULARY_SEGMENTS = 8;

struct SegmentResult {
  float best;  // greatest logit, score or perturbed score, as the row's settings ask
  int32_t id;  // its id, the lowest of equals
  float top, sum;  // raw logits: maximum, and Σ exp(logit − top)
  int32_t is_finite;
};
struct SampleState {
  SegmentResult segment[VOCABULARY_SEGMENTS];
  std::atomic<int32_t> done{0};
};

struct SampleArgs {
  const float* logits;   // [heads, vocab]
  int32_t vocab, count;
  HrRow* const* rows;    // [count]; token, logprob and is_nan are set. A row with draws 0 or is_nan draws nothing
  const int32_t* heads;  // [count]: the row of logits that each draws from
  const float* const* adjusted;  // [count]: what became of that row where it was adjusted, else null
  SampleState* states;   // [count]
};

int64_t sample_tiles(const SampleArgs&);
void sample_tile(const SampleArgs&, int64_t tile);  // the last tile of a row finishes it

}  // namespace hr
