// How likely given ids were to follow: log-probability, rank and the likeliest others, for each of many tokens.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

struct ScoreItem {
  HrRow* row;  // whose token it is; is_nan is set where its logits are not finite
  HrScore* score;
};
struct ScoreArgs {
  const float* logits;  // [count, vocab]
  int32_t vocab, count;
  const ScoreItem* items;  // [count]
};

inline int64_t score_tiles(const ScoreArgs& args) { return args.count; }
void score_tile(const ScoreArgs&, int64_t tile);

}  // namespace hr
