// Where a word of a packed weight lies: panels of 48 columns, each one run of steps of 48 words.
//
// A word is what one lane of a dot product takes at once: one K of float32, or a pair of K of bfloat16, the even member
// low. A panel is read as one stream. Columns past N are zero, and so is the partner of an odd last K.
#pragma once
#include <cstdint>

#include "api.h"
#include "vec.h"

namespace hr {

constexpr int PANEL_VECTORS = 3;
constexpr int PANEL_COLUMNS = PANEL_VECTORS * LANES;

inline int64_t members_of(int32_t dtype) { return dtype == HR_BFLOAT16 ? 2 : 1; }
inline int64_t element_bytes(int32_t dtype) { return 4 / members_of(dtype); }
inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t panels_of(int64_t n) { return ceil_div(n, PANEL_COLUMNS); }
inline int64_t steps_of(int64_t k, int32_t dtype) { return ceil_div(k, members_of(dtype)); }

inline int64_t packed_bytes(int64_t n, int64_t k, int32_t dtype) {
  return panels_of(n) * steps_of(k, dtype) * PANEL_COLUMNS * 4;
}

// The first step's words of 16 consecutive columns; the next step lies PANEL_COLUMNS words on.
inline const uint32_t* vector_at(const HrLinear& weight, int64_t vector) {
  const int64_t panel_words = steps_of(weight.k, weight.dtype) * PANEL_COLUMNS;
  return static_cast<const uint32_t*>(weight.data) + vector / PANEL_VECTORS * panel_words +
         vector % PANEL_VECTORS * LANES;
}

}  // namespace hr
