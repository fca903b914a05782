// C entry points that run one operation alone, for tests: tiles in any order, by any number of threads.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <vector>

#include "adjust.h"
#include "bf16.h"
#include "paged_attention.h"
#include "philox.h"
#include "rms_norm.h"
#include "rope_kv.h"
#include "sample.h"
#include "step.h"
#include "swiglu.h"
#include "vec_math.h"

namespace {

// Every tile once, in an order drawn from `seed` (0: ascending).
template <class Run>
void run_tiles(int64_t tiles, int32_t threads, uint32_t seed, Run run) {
  std::vector<int64_t> order(tiles);
  for (int64_t i = 0; i < tiles; ++i) order[i] = i;
  if (seed) std::shuffle(order.begin(), order.end(), std::mt19937(seed));
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    hr::FloatMode mode;
    for (int64_t i; (i = next.fetch_add(1)) < tiles;) run(order[i]);
  };
  std::vector<std::thread> team;
  for (int32_t i = 1; i < threads; ++i) team.emplace_back(work);
  work();
  for (std::thread& thread : team) thread.join();
}

template <class Op>
void map_lanes(const float* x, float* y, int64_t n, Op op) {
  hr::FloatMode mode;
  for (int64_t i = 0; i < n; i += hr::LANES) hr::store_n(y + i, op(hr::load_n(x + i, n - i, 1.0f)), n - i);
}

}  // namespace

extern "C" {

void hr_test_exp(const float* x, float* y, int64_t n) {
  map_lanes(x, y, n, [](const hr::F16& v) { return hr::exp(v); });
}
void hr_test_log(const float* x, float* y, int64_t n) {
  map_lanes(x, y, n, [](const hr::F16& v) { return hr::log(v); });
}
void hr_test_round(const float* x, uint16_t* y, int64_t n) {
  hr::FloatMode mode;
  for (int64_t i = 0; i < n; i += hr::LANES) hr::store_bf16_n(y + i, hr::load_n(x + i, n - i), n - i);
}
// [n] sums of pairs; the members of a and b are words, the even one low. n a multiple of 16.
void hr_test_dot_pairs(const float* sum, const uint32_t* a, const uint32_t* b, float* y, int64_t n) {
  hr::FloatMode mode;
  for (int64_t i = 0; i < n; i += hr::LANES) {
    hr::store(y + i, hr::dot_pairs(hr::load(sum + i), hr::load_words(a + i), hr::load_words(b + i)));
  }
}

void hr_test_rms_norm(const hr::RmsNormArgs* args, int32_t threads, uint32_t seed) {
  run_tiles(hr::rms_norm_tiles(*args), threads, seed, [&](int64_t tile) { hr::rms_norm_tile(*args, tile); });
}
void hr_test_swiglu(const hr::SwigluArgs* args, int32_t threads, uint32_t seed) {
  run_tiles(hr::swiglu_tiles(*args), threads, seed, [&](int64_t tile) { hr::swiglu_tile(*args, tile); });
}
void hr_test_rope_kv(const hr::RopeKvArgs* args, int32_t threads, uint32_t seed) {
  run_tiles(hr::rope_kv_tiles(*args), threads, seed, [&](int64_t tile) { hr::rope_kv_tile(*args, tile); });
}
// `repeats` > 1 runs the same plan again, as the layers of a step do.
void hr_test_attention(hr::AttentionArgs* args, int32_t row_count, int32_t threads, uint32_t seed, int32_t repeats) {
  hr::AttentionPlan plan;
  args->plan = &plan;
  hr::plan_attention(plan, args->rows, row_count, args->heads, args->kv_heads, args->window);
  for (int32_t i = 0; i < repeats; ++i) {
    run_tiles(hr::attention_tiles(*args), threads, seed, [&](int64_t tile) { hr::attention_tile(*args, tile); });
  }
  args->plan = nullptr;
}
// The words of ids 0 … n − 1, n a multiple of 32, one by one or many at once.
void hr_test_philox(uint64_t key, uint32_t position, int64_t n, int32_t at_once, uint32_t* words) {
  const hr::Noise noise{key, position};
  for (int64_t i = 0; i < n; i += at_once ? hr::NOISE_BLOCK : 1) {
    if (!at_once) {
      words[i] = hr::philox_word(noise, static_cast<uint32_t>(i));
      continue;
    }
    hr::U16 block[2];
    hr::philox_words(noise, static_cast<uint32_t>(i), block);
    hr::store(words + i, block[0]);
    hr::store(words + i + hr::LANES, block[1]);
  }
}
// logits [count, vocab]; a row's token, logprob and is_nan are set.
void hr_test_sample(const float* logits, int32_t vocab, HrRow* rows, int32_t count, int32_t threads, uint32_t seed) {
  std::vector<hr::SampleState> states(count);
  std::vector<HrRow*> pointers(count);
  std::vector<int32_t> heads(count);
  std::vector<const float*> adjusted(count);
  std::vector<float> copies(static_cast<size_t>(count) * vocab);
  std::vector<hr::AdjustItem> items;
  for (int32_t i = 0; i < count; ++i) {
    pointers[i] = rows + i, heads[i] = i;
    if (!rows[i].adjust) continue;
    float* copy = copies.data() + static_cast<size_t>(i) * vocab;
    items.push_back({rows[i].adjust, i, copy});
    adjusted[i] = copy;
  }
  const hr::AdjustArgs adjust{logits, vocab, static_cast<int32_t>(items.size()), items.data()};
  run_tiles(hr::adjust_tiles(adjust), threads, seed, [&](int64_t tile) { hr::adjust_tile(adjust, tile); });
  const hr::SampleArgs args{logits, vocab, count, pointers.data(), heads.data(), adjusted.data(), states.data()};
  run_tiles(hr::sample_tiles(args), threads, seed, [&](int64_t tile) { hr::sample_tile(args, tile); });
}

// Each thread of the context is late by so many microseconds with every so many-th share of tiles; 0: never.
void hr_test_be_late(HrContext* context, int64_t every, int64_t microseconds) {
  context->team.be_late(every, microseconds);
}

}  // extern "C"
