#include "native/panel.h"
#include "native/step.h"

namespace hr {
namespace {

constexpr int32_t GROUP = 16;  // positions and dims are taken sixteen at a time by attention

bool has_cuts(const HrLinear& weight) {
  if (!weight.cuts || weight.segments < 1 || weight.cuts[0] != 0 || weight.cuts[weight.segments] != weight.k) {
    return false;
  }
  const int32_t unit = is_quantised(weight.dtype) ? QUAD : members_of(weight.dtype);  // never cut
  for (int32_t s = 0; s < weight.segments; ++s) {
    if (weight.cuts[s] >= weight.cuts[s + 1]) return false;
    if (weight.cuts[s] % unit != 0) return false;
  }
  return true;
}

int32_t check_layer(const HrModel& model, const HrLayer& layer) {
  if (!layer.attention_norm || !layer.ffn_norm || !layer.q_norm != !layer.k_norm) return ERROR_NO_MODEL;
  if ((layer.is_windowed & ~1) || (layer.is_windowed && model.window < 1)) return ERROR_BAD_SHAPE;
  const int32_t width = model.heads * model.head_dim;
  const HrLinear* weights[] = {&layer.qkv, &layer.o, &layer.gate_up, &layer.down};
  const int32_t shapes[][2] = {{width + 2 * model.kv_heads * model.head_dim, model.hidden},
                               {model.hidden, width},
                               {2 * model.ffn, model.hidden},
                               {model.hidden, model.ffn}};
  for (int i = 0; i < 4; ++i) {
    if (int32_t error = check_linear(*weights[i], shapes[i][0], shapes[i][1], model.dtype)) return error;
  }
  return STEP_OK;
}

int32_t check_table(const HrRow& row, const HrPool& pool) {
  if (!row.table) return ERROR_BAD_BLOCK;
  const int64_t length = int64_t{row.base} + row.tokens;
  for (int64_t i = 0; i * pool.block_tokens < length; ++i) {
    if (row.table[i] < 0 || row.table[i] >= pool.blocks) return ERROR_BAD_BLOCK;
  }
  return STEP_OK;
}

int32_t check_ids(const int32_t* ids, int32_t count, int32_t vocab) {
  if (count < 0 || (count > 0 && !ids)) return ERROR_BAD_ROWS;
  for (int32_t i = 0; i < count; ++i) {
    if (ids[i] < 0 || ids[i] >= vocab) return ERROR_BAD_ID;
  }
  return STEP_OK;
}

int32_t check_adjust(const HrAdjust& adjust, int32_t vocab) {
  if ((adjust.seen_count > 0 && !adjust.counts) || (adjust.bias_count > 0 && !adjust.bias)) return ERROR_BAD_ROWS;
  if (int32_t error = check_ids(adjust.seen, adjust.seen_count, vocab)) return error;
  if (int32_t error = check_ids(adjust.bias_ids, adjust.bias_count, vocab)) return error;
  return check_ids(adjust.banned, adjust.banned_count, vocab);
}

int32_t check_scores(const HrRow& row, int32_t vocab) {
  if (row.score_count < 0 || row.score_count > row.tokens || (row.score_count > 0 && !row.scores)) return ERROR_BAD_ROWS;
  for (int32_t i = 0; i < row.score_count; ++i) {
    const HrScore& score = row.scores[i];
    if (score.top_count < 0 || (score.top_count > 0 && !score.top)) return ERROR_BAD_ROWS;
    if (score.id < 0 || score.id >= vocab) return ERROR_BAD_ID;
  }
  return STEP_OK;
}

int32_t check_draws(const HrRow& row, int32_t vocab) {
  if (row.top_count < 0 || (row.top_count > 0 && !(row.top && row.wants_logprob))) return ERROR_BAD_ROWS;
  return row.adjust ? check_adjust(*row.adjust, vocab) : STEP_OK;
}

int32_t check_forks(const HrRow& row, int32_t vocab) {
  if (row.fork_count < 0 || (row.fork_count > 0 && !(row.forks && row.draws))) return ERROR_BAD_ROWS;
  for (int32_t i = 0; i < row.fork_count; ++i) {
    if (row.forks[i].fork_count || !row.forks[i].draws) return ERROR_BAD_ROWS;
    if (int32_t error = check_draws(row.forks[i], vocab)) return error;
  }
  return check_draws(row, vocab);
}

}  // namespace

int32_t check_linear(const HrLinear& weight, int32_t n, int32_t k, int32_t dtype) {
  if (!weight.data) return ERROR_NO_MODEL;
  if (weight.dtype != dtype || weight.n != n || weight.k != k) return ERROR_BAD_SHAPE;
  return check_shape(weight);
}

int32_t check_shape(const HrLinear& weight) {
  if (!is_dtype(weight.dtype) || weight.n < 1 || weight.k < 1) return ERROR_BAD_SHAPE;
  return has_cuts(weight) ? STEP_OK : ERROR_BAD_SEGMENTS;
}

int32_t check_model(const HrModel& model, const HrPool& pool) {
  if (!model.layer || !model.embedding || !model.head || !model.final_norm || !model.cos || !model.sin) {
    return ERROR_NO_MODEL;
  }
  if (!pool.kv || !pool.fill_counts || pool.blocks < 1) return ERROR_NO_MODEL;
  if (model.heads < 1 || model.kv_heads < 1 || model.heads % model.kv_heads || model.head_dim < GROUP ||
      model.head_dim % GROUP || model.head_dim > MAX_HEAD_DIM || pool.block_tokens < GROUP ||
      pool.block_tokens % GROUP || model.layers < 1 || model.positions < 1) {
    return ERROR_BAD_SHAPE;
  }
  for (int32_t i = 0; i < model.layers; ++i) {
    if (int32_t error = check_layer(model, model.layer[i])) return error;
  }
  if (int32_t error = check_linear(*model.embedding, model.vocab, model.hidden, model.dtype)) return error;
  return check_linear(*model.head, model.vocab, model.hidden, model.dtype);
}

int32_t check_rows(const StepInput& input) {
  if (!input.ids || !input.rows || input.tokens < 1 || input.row_count < 1) return ERROR_BAD_ROWS;
  int64_t start = 0;
  for (int32_t r = 0; r < input.row_count; ++r) {
    const HrRow& row = input.rows[r];
    if (row.start != start || row.tokens < 1 || row.base < 0) return ERROR_BAD_ROWS;
    start += row.tokens;
    if (int64_t{row.base} + row.tokens > input.model->positions) return ERROR_TOO_LONG;
    if (int32_t error = check_table(row, *input.pool)) return error;
    if (int32_t error = check_forks(row, input.model->vocab)) return error;
    if (int32_t error = check_scores(row, input.model->vocab)) return error;
  }
  if (start != input.tokens) return ERROR_BAD_ROWS;
  for (int32_t i = 0; i < input.tokens; ++i) {
    if (input.ids[i] < 0 || input.ids[i] >= input.model->vocab) return ERROR_BAD_ID;
  }
  return STEP_OK;
}

}  // namespace hr
