// What the compiler made of the structs of api.h, so that their mirrors elsewhere can be checked field by field.
#include <cstddef>

#include "native/api.h"

namespace {

#define HR_AT(Struct, field) static_cast<int32_t>(offsetof(Struct, field))
#define HR_SIZE(Struct) static_cast<int32_t>(sizeof(Struct))

constexpr int32_t VALUES[] = {
    HR_SIZE(HrLinear), HR_AT(HrLinear, data), HR_AT(HrLinear, bias), HR_AT(HrLinear, cuts), HR_AT(HrLinear, segments),
    HR_AT(HrLinear, n), HR_AT(HrLinear, k), HR_AT(HrLinear, dtype),

    HR_SIZE(HrLayer), HR_AT(HrLayer, attention_norm), HR_AT(HrLayer, q_norm), HR_AT(HrLayer, k_norm),
    HR_AT(HrLayer, is_windowed), HR_AT(HrLayer, qkv), HR_AT(HrLayer, o), HR_AT(HrLayer, ffn_norm),
    HR_AT(HrLayer, gate_up), HR_AT(HrLayer, down),

    HR_SIZE(HrModel), HR_AT(HrModel, layers), HR_AT(HrModel, hidden), HR_AT(HrModel, heads), HR_AT(HrModel, kv_heads),
    HR_AT(HrModel, head_dim), HR_AT(HrModel, ffn), HR_AT(HrModel, vocab), HR_AT(HrModel, positions),
    HR_AT(HrModel, dtype), HR_AT(HrModel, window), HR_AT(HrModel, rms_eps), HR_AT(HrModel, scale), HR_AT(HrModel, embedding),
    HR_AT(HrModel, layer), HR_AT(HrModel, final_norm), HR_AT(HrModel, head), HR_AT(HrModel, cos), HR_AT(HrModel, sin),

    HR_SIZE(HrPool), HR_AT(HrPool, kv), HR_AT(HrPool, fill_counts), HR_AT(HrPool, blocks), HR_AT(HrPool, block_tokens),

    HR_SIZE(HrTop), HR_AT(HrTop, id), HR_AT(HrTop, logprob),

    HR_SIZE(HrScore), HR_AT(HrScore, id), HR_AT(HrScore, logprob), HR_AT(HrScore, rank), HR_AT(HrScore, top_count),
    HR_AT(HrScore, top),

    HR_SIZE(HrAdjust), HR_AT(HrAdjust, seen), HR_AT(HrAdjust, counts), HR_AT(HrAdjust, repetition),
    HR_AT(HrAdjust, frequency), HR_AT(HrAdjust, presence), HR_AT(HrAdjust, seen_count), HR_AT(HrAdjust, bias_ids),
    HR_AT(HrAdjust, bias), HR_AT(HrAdjust, allowed), HR_AT(HrAdjust, mask), HR_AT(HrAdjust, mask_ready),
    HR_AT(HrAdjust, banned), HR_AT(HrAdjust, bias_count), HR_AT(HrAdjust, banned_count),

    HR_SIZE(HrRow), HR_AT(HrRow, start), HR_AT(HrRow, tokens), HR_AT(HrRow, base), HR_AT(HrRow, draws),
    HR_AT(HrRow, table), HR_AT(HrRow, temperature), HR_AT(HrRow, min_p), HR_AT(HrRow, top_p), HR_AT(HrRow, top_k),
    HR_AT(HrRow, position), HR_AT(HrRow, key), HR_AT(HrRow, adjust), HR_AT(HrRow, wants_logprob),
    HR_AT(HrRow, token), HR_AT(HrRow, is_nan), HR_AT(HrRow, logprob),
    HR_AT(HrRow, fork_count), HR_AT(HrRow, forks), HR_AT(HrRow, top), HR_AT(HrRow, top_count),
    HR_AT(HrRow, top_is_raw), HR_AT(HrRow, score_count), HR_AT(HrRow, scores),
};

}  // namespace

int32_t hr_layout(int32_t* values, int32_t most) {
  constexpr int32_t count = sizeof VALUES / sizeof VALUES[0];
  for (int32_t i = 0; i < count && i < most; ++i) values[i] = VALUES[i];
  return count;
}
