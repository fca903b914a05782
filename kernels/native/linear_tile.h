// Register tiles of a product: a few tokens by 48 columns from any multiple of 16 on, one file a class of weights.
#pragma once
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ahead.h"
#include "api.h"
#include "panel.h"

namespace hr {

#if defined(__AVX512BF16__)
constexpr int GROUP_TOKENS = 8;  // 24 of 32 registers hold sums
#elif defined(__AVX512F__)
constexpr int GROUP_TOKENS = 6;
#elif defined(__AVX2__)
constexpr int GROUP_TOKENS = 4;
#else
constexpr int GROUP_TOKENS = 2;
#endif

// Vectors of a panel taken at once: with 16 registers, two to a vector, only one beside several tokens.
constexpr int vectors_at_once(int tokens) { return PARTS == 1 || (PARTS == 2 && tokens == 1) ? PANEL_VECTORS : 1; }

constexpr int64_t STEPS_AHEAD = 32;  // of a panel that is read from memory

// What a tile asks memory for: so many bytes from there on with each step.
struct Ahead {
  const char* at;
  int64_t step_bytes;
  bool is_read_again;
  Ahead from(int64_t step) const { return {at + step * step_bytes, step_bytes, is_read_again}; }
};

// For one of the groups of tokens that a panel is multiplied by. A single one asks for the same panel further on; several
// ask for a share each of a panel to come.
inline Ahead ahead_of(const HrLinear& weight, int64_t vector, int64_t group, int64_t groups) {
  const int64_t step_bytes = PANEL_COLUMNS * (weight.dtype == HR_INT8W ? 2 : 4), panel_bytes = panel_words(weight) * 4;
  const char* panel = static_cast<const char*>(weight.data) + vector / PANEL_VECTORS * panel_bytes;
  if (groups == 1) return {panel + STEPS_AHEAD * step_bytes, step_bytes, false};
  return {panel + TILES_AHEAD * panel_bytes + panel_bytes * group / groups, ceil_div(step_bytes, groups), true};
}

// Calls `run` with the Ask of a step.
template <int R, class Run>
HR_INLINE void with_ask(const Ahead& ahead, Run run) {
  if constexpr (vectors_at_once(R) == PANEL_VECTORS) {
    const int64_t lines = ceil_div(ahead.step_bytes, LINE_BYTES);
    if (ahead.is_read_again) return lines == 1 ? run(Ask<1, true>{}) : run(Ask<2, true>{});
    return lines == 2 ? run(Ask<2, false>{}) : run(Ask<3, false>{});
  }
  run(Ask<0, false>{});
}

// y [tokens, 48] = (s0 + s1) + … for up to GROUP_TOKENS tokens and the 48 columns from `vector` on, tokens y_stride apart;
// vectors past the last repeat it. `unpacked`: null, or the weight's integers as unpack_columns() left them.
struct TileArgs {
  const HrLinear* weight;
  const void* x;  // the first token
  int64_t vector;
  const uint32_t* unpacked;
  float* y;
  int64_t y_stride;
  Ahead ahead;
};
using Multiply = void (*)(const TileArgs&);

// The kernel for this many tokens among those that `Of<R>::run` are.
template <template <int> class Of, int... I>
Multiply multiply_for(int64_t tokens, std::integer_sequence<int, I...>) {
  static constexpr Multiply TABLE[] = {Of<I + 1>::run...};
  return TABLE[tokens - 1];
}
template <template <int> class Of>
Multiply multiply_for(int64_t tokens) {
  return multiply_for<Of>(tokens, std::make_integer_sequence<int, GROUP_TOKENS>{});
}

Multiply multiply_int8(int64_t tokens);
Multiply multiply_int8w(int64_t tokens);

// The integers of 48 columns of an int8w weight as pairs of bfloat16, [⌈K / 2⌉][48] words: worth it where many tokens read
// them.
int64_t unpacked_words(const HrLinear&);
void unpack_columns(const HrLinear&, int64_t vector, uint32_t* to);

}  // namespace hr
