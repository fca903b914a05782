#include "native/adjust.h"

#include <algorithm>
#include <thread>

#include "native/vec.h"

namespace hr {
namespace {

constexpr int32_t WORD_BITS = 32;
constexpr int PAUSES = 4096;  // looks at the flag before a thread gives way to others

void penalise(const HrAdjust& adjust, float* logits) {
  for (int32_t i = 0; i < adjust.seen_count; ++i) {
    float x = logits[adjust.seen[i]];
    x = x > 0.0f ? x / adjust.repetition : x * adjust.repetition;
    if (adjust.counts[i] > 0) {
      x -= adjust.frequency * static_cast<float>(adjust.counts[i]);
      x -= adjust.presence;
    }
    logits[adjust.seen[i]] = x;
  }
}

// Whoever fills the mask beside this step says so when it is done, and never fails to.
void await(const int32_t* ready) {
  for (int i = 0; ready && !__atomic_load_n(ready, __ATOMIC_ACQUIRE); ++i) {
    if (i >= PAUSES) std::this_thread::yield();
#if defined(__x86_64__)
    _mm_pause();
#endif
  }
}

// Ids whose bit is 0 are banned: bit id mod 32 of word id / 32.
void apply_mask(const uint32_t* mask, float* logits, int32_t vocab) {
  static constexpr uint32_t BITS[LANES] = {1u << 0, 1u << 1, 1u << 2,  1u << 3,  1u << 4,  1u << 5,  1u << 6,  1u << 7,
                                           1u << 8, 1u << 9, 1u << 10, 1u << 11, 1u << 12, 1u << 13, 1u << 14, 1u << 15};
  constexpr uint32_t ALL = (1u << LANES) - 1;
  const F16 banned = splat(-INFINITY);
  for (int32_t first = 0; first < vocab; first += LANES) {
    const uint32_t allowed = mask[first / WORD_BITS] >> (first % WORD_BITS) & ALL;
    if (allowed == ALL) continue;
    const int n = std::min(LANES, vocab - first);
    const M16 is_allowed = (splat_word(allowed) & load_words(BITS)) >= splat_word(1);
    store_n(logits + first, select(is_allowed, load_n(logits + first, n), banned), n);
  }
}

}  // namespace

void adjust_tile(const AdjustArgs& args, int64_t tile) {
  const AdjustItem& item = args.items[tile];
  const HrAdjust& adjust = *item.adjust;
  std::copy_n(args.logits + int64_t{item.head} * args.vocab, args.vocab, item.out);
  penalise(adjust, item.out);
  for (int32_t i = 0; i < adjust.bias_count; ++i) item.out[adjust.bias_ids[i]] += adjust.bias[i];
  if (adjust.allowed) apply_mask(adjust.allowed, item.out, args.vocab);
  if (adjust.mask) {
    await(adjust.mask_ready);
    apply_mask(adjust.mask, item.out, args.vocab);
  }
  for (int32_t i = 0; i < adjust.banned_count; ++i) item.out[adjust.banned[i]] = -INFINITY;
}

}  // namespace hr
