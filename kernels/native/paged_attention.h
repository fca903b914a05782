// Causal attention of each row's new tokens over its KV blocks, in pieces at absolute positions 0, 256, 512, …
//
// A tile is a few query rows of one kv head (tokens × query heads that share it) against all their positions, or, where a
// row of the step has so few that threads would idle, against one piece of them; the last tile of such a row merges its
// pieces from left to right. What a tile computes for a query row depends on nothing but that row and its KV.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "api.h"
#include "attention_piece.h"

namespace hr {

// `rows` query rows of step row `row`, from `first` on, counted token by token, G query heads each.
struct AttentionItem {
  int32_t row;
  int32_t first, rows;
  int32_t piece, pieces;  // [piece, piece + pieces) of the row
  int64_t partial;        // where the pieces of the row begin, counted in pieces; −1: the item merges by itself
  int32_t counter, parts;  // of a row split by pieces: its counter, and the tiles that count
  int64_t cost;
};

// The items of a step, the same for all layers; heaviest first. Memory is kept from step to step.
struct AttentionPlan {
  std::vector<AttentionItem> items;
  std::vector<PieceResult> partials;  // [pieces of split rows, H]
  std::vector<std::atomic<int32_t>> counters;  // [split rows, H]
};
// Whether tiles merge what others have computed: such a plan's may not be repeated.
inline bool is_split(const AttentionPlan& plan) {
  return std::any_of(plan.items.begin(), plan.items.end(), [](const AttentionItem& item) { return item.partial >= 0; });
}
void plan_attention(AttentionPlan&, const HrRow* rows, int32_t row_count, int32_t heads, int32_t kv_heads,
                    int32_t window);

struct AttentionArgs {
  const void* q;  // [M, Q D] of dtype, rotated
  void* out;      // [M, Q D] of out_dtype
  const HrPool* pool;
  const HrRow* rows;
  AttentionPlan* plan;
  int32_t heads, kv_heads, head_dim;
  int32_t layers, layer;
  float scale;
  int32_t window;  // a token sees the last `window` positions, itself included; 0: all
  int32_t dtype;   // HrDtype: float32 or bfloat16
  int32_t out_dtype;  // that, or float32
};

int64_t attention_tiles(const AttentionArgs&);
void attention_tile(const AttentionArgs&, int64_t tile);

}  // namespace hr
