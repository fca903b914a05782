// Where a head's keys and values of one block lie, and how a tile is cut into 32-bit words.
//
// A word is what one lane of a dot product takes at once: a pair of bfloat16 or one float32. With P members a word, K is
// [D / P][T] words (a word holds dims P i … of one token) and V is [T / P][D] words (a word holds tokens P i … of one dim).
#pragma once
#include <cstdint>
#include <cstring>

#include "api.h"
#include "bf16.h"

namespace hr {

struct Float32 {
  using Element = float;
  static constexpr int MEMBERS = 1;
  static HR_INLINE F16 dot(const F16& sum, const U16& a, const U16& b) { return fma(as_float(a), as_float(b), sum); }
};
struct Bfloat16 {
  using Element = Bf16;
  static constexpr int MEMBERS = 2;
  static HR_INLINE F16 dot(const F16& sum, const U16& a, const U16& b) { return dot_pairs(sum, a, b); }
};

constexpr int MAX_HEAD_DIM = 256;

struct KvShape {
  int32_t layers, kv_heads, block_tokens, head_dim;
};

// First element of a tile; `values` 0: keys, 1: values.
template <class Class>
HR_INLINE typename Class::Element* kv_tile(void* kv, const KvShape& shape, int64_t block, int layer, int values,
                                           int head) {
  const int64_t tile = ((block * shape.layers + layer) * 2 + values) * shape.kv_heads + head;
  return static_cast<typename Class::Element*>(kv) + tile * shape.block_tokens * shape.head_dim;
}
template <class Class>
HR_INLINE int64_t key_offset(int d, int slot, int block_tokens) {
  constexpr int P = Class::MEMBERS;
  return (int64_t{d / P} * block_tokens + slot) * P + d % P;
}
template <class Class>
HR_INLINE int64_t value_offset(int d, int slot, int head_dim) {
  constexpr int P = Class::MEMBERS;
  return (int64_t{slot / P} * head_dim + d) * P + slot % P;
}

// Calls `run` with an instance of the class that `dtype` names.
template <class Run>
HR_INLINE void with_class(int32_t dtype, Run run) {
  if (dtype == HR_BFLOAT16) {
    run(Bfloat16{});
  } else {
    run(Float32{});
  }
}

}  // namespace hr
