// What a row's logits go through before a token is drawn: penalties, biases, masks, bans, in a copy of the row.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

struct AdjustItem {
  const HrAdjust* adjust;
  int32_t head;  // which row of logits
  float* out;    // [vocab]
};
struct AdjustArgs {
  const float* logits;  // [heads, vocab]
  int32_t vocab, count;
  const AdjustItem* items;  // [count]
};

inline int64_t adjust_tiles(const AdjustArgs& args) { return args.count; }
void adjust_tile(const AdjustArgs&, int64_t tile);

}  // namespace hr
