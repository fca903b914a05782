// Where a word of a packed weight lies: panels of 48 columns, each one run of steps of 48 words.
//
// A word is what one lane of a dot product takes at once: one K of float32, or a pair of K of bfloat16, the even member
// low. A panel is read as one stream. Columns past N are zero, and so is the partner of an odd last K.
//
// A quantised panel is a run of groups: up to GROUP_K inputs of one segment, beginning at its first. A group is a header,
// then its integers. int8: −128 Σ q (int32) and the scale (float32) of each column; steps of 48 words of four K, the first
// one lowest. int8w: the scales; for each K 48 bytes. A panel's K ends in zeros up to a multiple of 4.
#pragma once
#include <algorithm>
#include <cstdint>

#include "api.h"
#include "vec.h"

namespace hr {

constexpr int PANEL_VECTORS = 3;
constexpr int PANEL_COLUMNS = PANEL_VECTORS * LANES;
constexpr int64_t GROUP_K = 192;
constexpr int64_t QUAD = 4;
constexpr int64_t QUAD_WORDS = PANEL_COLUMNS;  // of four K of a quantised panel
constexpr int64_t LINE_BYTES = 64;

inline bool is_dtype(int32_t dtype) { return dtype >= HR_FLOAT32 && dtype <= HR_INT8W; }
inline bool is_quantised(int32_t dtype) { return dtype == HR_INT8 || dtype == HR_INT8W; }
// Of what a product of this class reads, before it is quantised; of queries, keys and values.
inline int32_t input_dtype(int32_t dtype) { return dtype == HR_INT8 ? HR_FLOAT32 : dtype == HR_INT8W ? HR_BFLOAT16 : dtype; }
inline int32_t kv_dtype(int32_t dtype) { return is_quantised(dtype) ? HR_BFLOAT16 : dtype; }

inline int64_t members_of(int32_t dtype) { return dtype == HR_FLOAT32 ? 1 : 2; }
inline int64_t element_bytes(int32_t dtype) { return 4 / members_of(dtype); }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t rounded_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }
inline int64_t panels_of(int64_t n) { return ceil_div(n, PANEL_COLUMNS); }
inline int64_t header_words(int32_t dtype) { return dtype == HR_INT8 ? 2 * PANEL_COLUMNS : PANEL_COLUMNS; }

// Groups of segments [0, end).
inline int64_t groups_of(const HrLinear& weight, int32_t end) {
  int64_t groups = 0;
  for (int32_t s = 0; s < end; ++s) groups += ceil_div(weight.cuts[s + 1] - weight.cuts[s], GROUP_K);
  return groups;
}
// Where the group that begins with input `begin` lies in its panel, `group` others before it.
inline int64_t group_offset(int32_t dtype, int64_t begin, int64_t group) {
  return begin / QUAD * QUAD_WORDS + group * header_words(dtype);
}

inline int64_t panel_words(const HrLinear& weight) {
  if (!is_quantised(weight.dtype)) return ceil_div(weight.k, members_of(weight.dtype)) * PANEL_COLUMNS;
  return group_offset(weight.dtype, rounded_up(weight.k, QUAD), groups_of(weight, weight.segments));
}
inline int64_t packed_bytes(const HrLinear& weight) { return panels_of(weight.n) * panel_words(weight) * 4; }

// The first word of 16 consecutive columns; the next step lies PANEL_COLUMNS words on.
inline const uint32_t* vector_at(const HrLinear& weight, int64_t vector) {
  return static_cast<const uint32_t*>(weight.data) + vector / PANEL_VECTORS * panel_words(weight) +
         vector % PANEL_VECTORS * LANES;
}

// Calls `run(segment, begin, width, group)` for each group of a quantised weight, in the order of K.
template <class Run>
HR_INLINE void each_group_of_inputs(const HrLinear& weight, Run run) {
  int64_t group = 0;
  for (int32_t s = 0; s < weight.segments; ++s) {
    for (int64_t begin = weight.cuts[s]; begin < weight.cuts[s + 1]; begin += GROUP_K, ++group) {
      run(s, begin, std::min<int64_t>(GROUP_K, weight.cuts[s + 1] - begin), group);
    }
  }
}

}  // namespace hr
