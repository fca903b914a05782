#include "candidates.h"

#include <algorithm>
#include <array>
#include <utility>

#include "vec_math.h"

namespace hr {
namespace {

// exp(−17) < 2^−24: added to a running sum of at least 1 (the exponential of the maximum), such weights change nothing,
// so top_p never keeps an id this far below the top.
constexpr float WEIGHTLESS = -17.0f;
constexpr int GROUPS_PER_KEPT = 8;
constexpr size_t FEW = 1024;  // up to here comparing beats counting

// A score that at least k ids reach: the k-th of the maxima over disjoint groups of ids.
float bound_of_top_k(const RowScores& scores, int32_t k, std::vector<uint64_t>& spare) {
  const int32_t vectors = (scores.vocab() + LANES - 1) / LANES;
  const int32_t stride = std::max(1, scores.vocab() / std::max(1, std::min(k, scores.vocab()) * GROUPS_PER_KEPT));
  spare.clear();
  for (int32_t first = 0; first < vectors; first += stride) {
    F16 most = splat(-INFINITY);
    const int32_t last = std::min(first + stride, vectors);
    for (int32_t i = first; i < last; ++i) most = max(most, scores.at(i * LANES));
    float lanes[LANES];
    store(lanes, most);
    for (float lane : lanes) spare.push_back(Candidate::pack(lane, 0));
  }
  if (static_cast<size_t>(k) >= spare.size()) return -INFINITY;
  std::nth_element(spare.begin(), spare.begin() + (k - 1), spare.end());
  return Candidate::score(spare[k - 1]);
}

void collect(const RowScores& scores, float top, float bound, float min_p, std::vector<uint64_t>& kept) {
  kept.clear();
  for (int32_t first = 0; first < scores.vocab(); first += LANES) {
    const F16 score = scores.at(first);
    M16 passes = score >= splat(bound);
    if (!any(passes)) continue;
    if (min_p > 0.0f) passes = passes & (exp(score - splat(top)) >= splat(min_p));
    float lanes[LANES];
    int32_t flags[LANES];
    store(lanes, score);
    store(flags, passes);
    const int32_t n = std::min(LANES, scores.vocab() - first);
    for (int32_t i = 0; i < n; ++i) {
      if (flags[i]) kept.push_back(Candidate::pack(lanes[i], first + i));
    }
  }
}

// By score alone, equal scores as they come: collected ids ascend.
void sort_by_counting(std::vector<uint64_t>& kept, std::vector<uint64_t>& spare) {
  constexpr int DIGIT_BITS = 11, DIGITS = 3;
  spare.resize(kept.size());
  for (int digit = 0; digit < DIGITS; ++digit) {
    const int shift = 32 + digit * DIGIT_BITS;
    constexpr uint64_t MASK = (1u << DIGIT_BITS) - 1;
    std::array<uint32_t, MASK + 1> begin{};
    for (uint64_t candidate : kept) ++begin[candidate >> shift & MASK];
    uint32_t sum = 0;
    for (uint32_t& count : begin) sum += std::exchange(count, sum);
    for (uint64_t candidate : kept) spare[begin[candidate >> shift & MASK]++] = candidate;
    kept.swap(spare);
  }
}

// How many of the sorted candidates are kept: those before which the running sum is below top_p times its total.
size_t count_of_top_p(const std::vector<uint64_t>& sorted, float top, float top_p) {
  float sum = 0.0f;
  std::vector<float> sums(sorted.size());
  for (size_t first = 0; first < sorted.size(); first += LANES) {
    float lanes[LANES] = {};
    const size_t n = std::min<size_t>(LANES, sorted.size() - first);
    for (size_t i = 0; i < n; ++i) lanes[i] = Candidate::score(sorted[first + i]);
    store(lanes, exp(load(lanes) - splat(top)));
    for (size_t i = 0; i < n; ++i) sums[first + i] = sum += lanes[i];
  }
  const float limit = top_p * sum;
  const size_t below = std::lower_bound(sums.begin(), sums.end(), limit) - sums.begin();
  return std::min(1 + below, sorted.size());
}

}  // namespace

RowScores::RowScores(const float* logits, const float* adjusted, int32_t vocab, double temperature)
    : logits_(logits),
      adjusted_(adjusted ? adjusted : logits),
      vocab_(vocab),
      temperature_(temperature == 0.0 ? 1.0f : static_cast<float>(temperature)) {}

uint64_t Candidate::pack(float score, int32_t id) {
  const float ranked = score + 0.0f;  // −0 ranks with +0
  uint32_t bits;
  std::memcpy(&bits, &ranked, sizeof bits);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return uint64_t{~ascending} << 32 | static_cast<uint32_t>(id);
}

float Candidate::score(uint64_t candidate) {
  const uint32_t ascending = ~static_cast<uint32_t>(candidate >> 32);
  const uint32_t bits = ascending & 0x80000000u ? ascending & 0x7FFFFFFFu : ~ascending;
  float score;
  std::memcpy(&score, &bits, sizeof score);
  return score;
}

void keep_candidates(const RowScores& scores, float top, const HrRow& row, std::vector<uint64_t>& kept,
                     std::vector<uint64_t>& spare) {
  const bool has_k = row.top_k > 0 && row.top_k < scores.vocab(), has_p = row.top_p < 1.0;
  float bound = has_p ? top + WEIGHTLESS : -INFINITY;
  if (has_k) bound = std::max(bound, bound_of_top_k(scores, row.top_k, spare));
  collect(scores, top, bound, static_cast<float>(row.min_p), kept);
  bool is_ascending = true;
  if (has_k && kept.size() > static_cast<size_t>(row.top_k)) {
    std::nth_element(kept.begin(), kept.begin() + (row.top_k - 1), kept.end());
    kept.resize(row.top_k);
    is_ascending = false;
  }
  if (!has_p) return;
  if (is_ascending && kept.size() > FEW) {
    sort_by_counting(kept, spare);
  } else {
    std::sort(kept.begin(), kept.end());
  }
  kept.resize(count_of_top_p(kept, top, static_cast<float>(row.top_p)));
}

}  // namespace hr
