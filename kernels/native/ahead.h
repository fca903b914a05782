// Asking memory for what a later tile reads while this one computes, so that neither waits for the other.
//
// The processor looks ahead by itself, but not past the end of a page, and not while a panel that several groups of tokens
// need is read once more from the cache. What is asked for goes to the second-level cache: the first has no room for it.
#pragma once
#include <cstdint>
#include <type_traits>

#include "linear_tile.h"
#include "panel.h"

namespace hr {

constexpr int64_t TILES_AHEAD = 2;   // two threads take tiles in turns: the next one is the other's
constexpr int64_t STEPS_AHEAD = 32;  // of a panel that is read from memory
constexpr int LEAST_ASKING = 4;      // tokens: with fewer, memory is all that a step waits for, and it is busy already

HR_INLINE void ask_for(const void* line) { __builtin_prefetch(line, 0, 2); }
HR_INLINE void ask_to_write(void* line) { __builtin_prefetch(line, 1, 2); }
template <int Lines>
HR_INLINE void ask_for_lines(const char* at) {
#pragma GCC unroll 3
  for (int i = 0; i < Lines; ++i) ask_for(at + i * LINE_BYTES);
}

// For one of the groups of tokens that a panel is multiplied by. A single one asks for the same panel further on; several
// ask for a share each of a panel to come.
inline Ahead ahead_of(const HrLinear& weight, int64_t vector, int64_t group, int64_t groups) {
  const int64_t step_bytes = PANEL_COLUMNS * (weight.dtype == HR_INT8W ? 2 : 4), panel_bytes = panel_words(weight) * 4;
  const char* panel = static_cast<const char*>(weight.data) + vector / PANEL_VECTORS * panel_bytes;
  if (groups == 1) return {panel + STEPS_AHEAD * step_bytes, step_bytes};
  return {panel + TILES_AHEAD * panel_bytes + panel_bytes * group / groups, ceil_div(step_bytes, groups)};
}

// Calls `run` with the number of lines that each step asks for.
template <int R, class Run>
HR_INLINE void with_lines(const Ahead& ahead, Run run) {
  if constexpr (R >= LEAST_ASKING && vectors_at_once(R) == PANEL_VECTORS) {
    switch (ceil_div(ahead.step_bytes, LINE_BYTES)) {
      case 1:
        return run(std::integral_constant<int, 1>{});
      case 2:
        return run(std::integral_constant<int, 2>{});
      case 3:
        return run(std::integral_constant<int, 3>{});
    }
  }
  run(std::integral_constant<int, 0>{});
}

}  // namespace hr
