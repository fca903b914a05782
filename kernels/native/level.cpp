// Which instruction level this library was built for, and whether the processor has it. Built without the level's own
// flags: it runs anywhere.
#include "native/api.h"

#ifndef HR_LEVEL
#define HR_LEVEL "portable"
#endif

namespace {

bool is_level(const char* name) {
  const char* level = HR_LEVEL;
  while (*level && *level == *name) ++level, ++name;
  return *level == *name;
}

}  // namespace

const char* hr_level(void) { return HR_LEVEL; }

int32_t hr_supported(void) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
  const bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512vnni");
  if (is_level("avx512bf16")) return bf16;
  if (is_level("avx512")) return avx512;
  if (is_level("avx2")) return avx2;
#endif
  return is_level("portable");
}
