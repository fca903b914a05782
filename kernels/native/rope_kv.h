// Rotate queries and keys by their positions, normed first where the model does so; queries go out rounded, keys and values into the slots of their tokens.
#pragma once
#include <cstdint>

#include "api.h"

namespace hr {

struct RopeKvArgs {
  const float* qkv;          // [tokens, (Q + 2H) D]: queries, keys, values
  void* q;                   // [tokens, Q D] of dtype
  const HrPool* pool;
  const int32_t* positions;  // [tokens] absolute
  const int32_t* blocks;     // [tokens]: the block that holds each token's slot, position mod T
  const float* cos;          // [positions, D / 2]
  const float* sin;
  int32_t tokens, heads, kv_heads, head_dim;
  int32_t layers, layer;
  int32_t dtype;  // HrDtype
  const float* q_norm;  // [D] for each query head, and k_norm for each key head; null: none
  const float* k_norm;
  float rms_eps;
};

int64_t rope_kv_tiles(const RopeKvArgs&);
void rope_kv_tile(const RopeKvArgs&, int64_t tile);

}  // namespace hr
