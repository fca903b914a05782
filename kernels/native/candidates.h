// The ids of a row that its filters keep: min_p, then top_k, then top_p.
#pragma once
#include <cstdint>
#include <vector>

#include "api.h"
#include "vec.h"

namespace hr {

// Scores of a row: adjusted logit ÷ temperature (1 for greedy), −∞ where banned or outside [0, vocab).
class RowScores {
 public:
  RowScores(const float* logits, const float* adjusted, int32_t vocab, double temperature);

  int32_t vocab() const { return vocab_; }
  // Sixteen ids from `first`, a multiple of 16; raw logits beyond the vocabulary read −∞.
  F16 raw(int32_t first) const { return load_n(logits_ + first, vocab_ - first, -INFINITY); }
  F16 at(int32_t first) const {
    const F16 scores = load_n(adjusted_ + first, vocab_ - first, -INFINITY);
    return temperature_ == 1.0f ? scores : scores / splat(temperature_);
  }

 private:
  const float *logits_, *adjusted_;
  int32_t vocab_;
  float temperature_;
};

// An id under its score: ascending candidates have descending scores, equal ones ascending ids.
struct Candidate {
  static uint64_t pack(float score, int32_t id);
  static float score(uint64_t candidate);
  static int32_t id(uint64_t candidate) { return static_cast<int32_t>(candidate & 0xFFFFFFFFu); }
};

// Kept candidates in no particular order; `top` is the greatest score. The memory of `kept` and `spare` is reused.
void keep_candidates(const RowScores& scores, float top, const HrRow& row, std::vector<uint64_t>& kept,
                     std::vector<uint64_t>& spare);

}  // namespace hr
