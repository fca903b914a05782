// One step of a Llama model as a program of phases: from token ids to drawn ids.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "adjust.h"
#include "api.h"
#include "paged_attention.h"
#include "sample.h"
#include "score.h"
#include "scratch.h"
#include "team.h"

// What outlives a step: threads, and memory that has grown to the largest one.
struct HrContext {
  explicit HrContext(int32_t threads) : team(threads), prepared(static_cast<size_t>(threads)) {}

  struct alignas(64) Prepared {
    int64_t input = -1;  // which product's input the thread's own buffer holds
  };

  hr::Team team;
  std::vector<Prepared> prepared;
  hr::AttentionPlan plans[2], end_plans[2];  // of layers that see everything, and of windowed ones
  hr::Buffer positions, blocks, hidden, layers, own, end_hidden, end_q, head_input, logits;
  hr::Buffer adjusted, score_logits;
  std::vector<int32_t> layer_begin; // the first phase of each layer
  std::vector<HrRow> ends;          // the last tokens of rows that draw, all of those that are scored
  std::vector<int32_t> end_tokens;  // which of the step's tokens these are
  std::vector<int32_t> end_of;      // [rows]: the last of its tokens among them, −1 where there is none
  std::vector<int32_t> scored;      // which of the end tokens are scored
  std::vector<hr::ScoreItem> scores;  // of each of those
  std::vector<int32_t> drawn;       // ends whose logits are computed
  std::vector<HrRow*> drawing;      // their rows and these rows' forks
  std::vector<int32_t> heads;       // of each of these, whose logits it draws from
  std::vector<const float*> adjusted_of;    // what became of them, null where nothing
  std::vector<hr::AdjustItem> adjustments;  // one for all draws from the same logits under the same adjustment
  std::unique_ptr<hr::SampleState[]> states;
  size_t state_count = 0;
};

namespace hr {

struct StepInput {
  const HrModel* model;
  const HrPool* pool;
  const int32_t* ids;
  int32_t tokens;
  HrRow* rows;
  int32_t row_count;
  float* logits;
};

enum StepError : int32_t {
  STEP_OK = 0,
  ERROR_NO_MEMORY = -1,
  ERROR_NO_MODEL = -2,
  ERROR_BAD_SHAPE = -3,
  ERROR_BAD_SEGMENTS = -4,
  ERROR_BAD_ROWS = -5,
  ERROR_BAD_ID = -6,
  ERROR_BAD_BLOCK = -7,
  ERROR_TOO_LONG = -8,
};

// What would read or write out of bounds is refused before anything is written.
int32_t check_model(const HrModel& model, const HrPool& pool);
int32_t check_shape(const HrLinear& weight);  // all but its data
int32_t check_linear(const HrLinear& weight, int32_t n, int32_t k, int32_t dtype);
int32_t check_rows(const StepInput& input);

void run_step(HrContext& context, const StepInput& input);

}  // namespace hr
