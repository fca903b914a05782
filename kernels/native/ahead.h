// Asking memory for what a later tile reads while this one computes, so that neither waits for the other.
//
// The processor looks ahead by itself, but not past the end of a page, and not while a panel that several groups of tokens
// need is read once more from the cache. What is asked for goes to the second-level cache: the first has no room for it.
#pragma once
#include <cstdint>

#include "panel.h"

namespace hr {

constexpr int64_t TILES_AHEAD = 1;  // a thread's tiles are neighbours

HR_INLINE void ask_for(const void* line) { __builtin_prefetch(line, 0, 2); }
HR_INLINE void ask_to_write(void* line) { __builtin_prefetch(line, 1, 2); }
template <int Lines>
HR_INLINE void ask_for_lines(const char* at) {
#pragma GCC unroll 3
  for (int i = 0; i < Lines; ++i) ask_for(at + i * LINE_BYTES);
}

}  // namespace hr
