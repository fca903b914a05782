// Norms of few tokens are computed by each thread for itself, right before the product that reads them: cheaper than a
// phase. Of the last layer's tokens only those that draw go past its keys and values: nobody reads the others.
#include "native/step.h"

#include <algorithm>

#include "native/linear.h"
#include "native/pack.h"
#include "native/panel.h"
#include "native/quantise.h"
#include "native/rms_norm.h"
#include "native/rope_kv.h"
#include "native/swiglu.h"

namespace hr {
namespace {

constexpr int32_t FEW_TOKENS = 8;
constexpr int32_t SCORED_TOGETHER = 32;  // tokens whose logits are in memory at once

bool all_finite(const float* x, int64_t count) {
  uint32_t bad = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof bits);
    bad |= uint32_t{(bits & 0x7F800000u) == 0x7F800000u};
  }
  return bad == 0;
}

class Step {
 public:
  Step(HrContext& context, const StepInput& input) : c_(context), in_(input), model_(*input.model) {
    const size_t M = static_cast<size_t>(in_.tokens);
    input_dtype_ = input_dtype(model_.dtype);
    kv_dtype_ = kv_dtype(model_.dtype);
    const size_t bytes = static_cast<size_t>(element_bytes(input_dtype_));
    const size_t width = size_t(model_.heads) * model_.head_dim, kv = size_t(model_.kv_heads) * model_.head_dim;
    all_ = {c_.hidden.at_least<float>(M * model_.hidden), in_.tokens};
    own_bytes_ = rounded_up(std::min<int64_t>(in_.tokens, FEW_TOKENS) * most_token_bytes(), LINE_BYTES);
    prepared_ = c_.normed.at_least<char>(std::max(M * most_token_bytes(), own_bytes_ * c_.prepared.size()));
    qkv_ = c_.qkv.at_least<float>(M * (width + 2 * kv));
    q_ = c_.q.at_least<char>(M * width * element_bytes(kv_dtype_));
    attended_ = c_.attended.at_least<char>(M * width * bytes);
    gated_ = c_.gated.at_least<char>(M * model_.ffn * bytes);
    for (HrContext::Prepared& prepared : c_.prepared) prepared.input = -1;
    place_tokens();
    place_ends();
    for (int32_t windowed = 0; windowed < 2; ++windowed) {
      if (!has_layer(windowed)) continue;
      plan(c_.plans[windowed], in_.rows, in_.row_count, windowed);
      plan(c_.end_plans[windowed], c_.ends.data(), static_cast<int32_t>(c_.ends.size()), windowed);
    }
    make_room_for_drawing();
  }

  void run() {
    const EmbeddingArgs embedding{model_.embedding, in_.ids, in_.tokens, all_.hidden};
    c_.team.label(HR_OP_EMBEDDING);
    c_.team.add(embedding_tiles(embedding), [embedding](int64_t tile, int) { embedding_tile(embedding, tile); });
    for (int32_t layer = 0; layer + 1 < model_.layers; ++layer) {
      add_keys(layer);
      add_attention(layer, all_, in_.rows, c_.plans, q_);
      add_feed_forward(layer, all_);
    }
    const int32_t last = model_.layers - 1;
    add_keys(last);
    add_ends();
    add_attention(last, ends_, c_.ends.data(), c_.end_plans, end_q_);
    add_feed_forward(last, ends_);
    add_head();
    c_.team.lap(HR_OP_PREPARE);
    c_.team.run();
    for (int32_t r = 0; r < in_.row_count; ++r) {
      if (!in_.rows[r].is_nan) publish(in_.rows[r]);
    }
    c_.team.lap(HR_OP_PUBLISH);
  }

 private:
  // Tokens that go through a layer together.
  struct Flow {
    float* hidden;  // [tokens, hidden]
    int32_t tokens;
    bool is_few() const { return tokens <= FEW_TOKENS; }
  };

  bool has_layer(int32_t windowed) const {
    return std::any_of(model_.layer, model_.layer + model_.layers,
                       [=](const HrLayer& layer) { return layer.is_windowed == windowed; });
  }
  int32_t window(int32_t windowed) const { return windowed ? model_.window : 0; }
  void plan(AttentionPlan& plan, const HrRow* rows, int32_t row_count, int32_t windowed) const {
    plan_attention(plan, rows, row_count, model_.heads, model_.kv_heads, model_.head_dim, window(windowed));
  }

  // Each token's absolute position and the block of its slot.
  void place_tokens() {
    positions_ = c_.positions.at_least<int32_t>(static_cast<size_t>(in_.tokens));
    blocks_ = c_.blocks.at_least<int32_t>(static_cast<size_t>(in_.tokens));
    for (int32_t r = 0; r < in_.row_count; ++r) {
      const HrRow& row = in_.rows[r];
      for (int32_t i = 0; i < row.tokens; ++i) {
        positions_[row.start + i] = row.base + i;
        blocks_[row.start + i] = row.table[(row.base + i) / in_.pool->block_tokens];
      }
    }
  }

  // The last tokens of rows that draw, and all tokens of rows that are scored, as rows of their own.
  void place_ends() {
    c_.ends.clear();
    c_.end_tokens.clear();
    c_.end_of.clear();
    c_.scored.clear();
    c_.scores.clear();
    for (int32_t r = 0; r < in_.row_count; ++r) {
      HrRow& row = in_.rows[r];
      clear(row);
      for (int32_t i = 0; i < row.fork_count; ++i) clear(row.forks[i]);
      const bool has_end = in_.logits || row.draws || row.score_count;
      const int32_t first = static_cast<int32_t>(c_.end_tokens.size()), tokens = row.score_count ? row.tokens : 1;
      c_.end_of.push_back(has_end ? first + tokens - 1 : -1);
      if (!has_end) continue;
      HrRow end = row;
      end.start = first;
      end.base = row.base + row.tokens - tokens;
      end.tokens = tokens;
      c_.ends.push_back(end);
      for (int32_t i = 0; i < tokens; ++i) c_.end_tokens.push_back(row.start + row.tokens - tokens + i);
      for (int32_t i = 0; i < row.score_count; ++i) {
        c_.scored.push_back(first + i);
        c_.scores.push_back({&row, row.scores + i});
      }
    }
    const size_t count = c_.end_tokens.size();
    ends_ = {c_.end_hidden.at_least<float>(count * model_.hidden), static_cast<int32_t>(count)};
    end_q_ = c_.end_q.at_least<char>(count * query_bytes());
  }

  size_t query_bytes() const { return size_t(model_.heads) * model_.head_dim * element_bytes(kv_dtype_); }

  void make_room_for_drawing() {
    const size_t most = c_.ends.size();
    size_t draws = most, adjusted = 0;
    for (int32_t r = 0; r < in_.row_count; ++r) {
      const HrRow& row = in_.rows[r];
      draws += static_cast<size_t>(row.fork_count);
      adjusted += row.draws && row.adjust;
      for (int32_t i = 0; i < row.fork_count; ++i) adjusted += row.forks[i].adjust != nullptr;
    }
    c_.drawing.clear();
    c_.drawing.reserve(draws);
    c_.heads.clear();
    c_.heads.reserve(draws);
    c_.adjusted_of.clear();
    c_.adjusted_of.reserve(draws);
    c_.adjustments.clear();
    c_.adjustments.reserve(adjusted);
    adjusted_ = c_.adjusted.at_least<float>(adjusted * model_.vocab);
    c_.drawn.clear();
    c_.drawn.reserve(most);
    if (draws > c_.state_count) {
      c_.states = std::make_unique<SampleState[]>(draws);
      c_.state_count = draws;
    }
    const size_t scored = std::min<size_t>(c_.scores.size(), SCORED_TOGETHER);
    head_input_ = c_.head_input.at_least<char>(std::max(most, scored) * token_bytes(*model_.head));
    score_logits_ = c_.score_logits.at_least<float>(scored * model_.vocab);
    logits_ = in_.logits ? in_.logits : c_.logits.at_least<float>(most * model_.vocab);
  }

  static void clear(HrRow& row) {
    row.token = -1;
    row.is_nan = 0;
    row.logprob = 0.0f;
  }

  void draw_from_last_head(HrRow& row) {
    const int32_t head = static_cast<int32_t>(c_.drawn.size()) - 1;
    c_.drawing.push_back(&row);
    c_.heads.push_back(head);
    c_.adjusted_of.push_back(row.draws && row.adjust ? adjusted_row(*row.adjust, head) : nullptr);
  }

  // Where the adjusted logits of a head lie. Forks come right behind the row whose adjustment they share.
  const float* adjusted_row(const HrAdjust& adjust, int32_t head) {
    if (c_.adjustments.empty() || c_.adjustments.back().adjust != &adjust || c_.adjustments.back().head != head) {
      c_.adjustments.push_back({&adjust, head, adjusted_ + c_.adjustments.size() * model_.vocab});
    }
    return c_.adjustments.back().out;
  }

  // The widest token that a product of a layer reads.
  size_t most_token_bytes() const {
    int64_t most = 0;
    for (int32_t i = 0; i < model_.layers; ++i) {
      const HrLayer& layer = model_.layer[i];
      for (const HrLinear* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
        most = std::max(most, token_bytes(*weight));
      }
    }
    return static_cast<size_t>(most);
  }

  const HrLinear* int8_reader(const HrLinear& weight) const { return weight.dtype == HR_INT8 ? &weight : nullptr; }

  // A product whose input is prepared first: prepare(out) gives the tiles that write it, run(x, tile) computes a tile of
  // the product. `input` names what is prepared, `op` the product.
  template <class Prepare, class Run>
  void add_prepared(const Flow& flow, HrOp op, int64_t input, int64_t tiles, Prepare prepare, Run run) {
    c_.team.label(op);
    if (flow.is_few()) {
      c_.team.add(tiles, [this, input, prepare, run](int64_t tile, int thread) {
        char* own = prepared_ + own_bytes_ * thread;
        if (c_.prepared[thread].input != input) {
          const auto args = prepare(own);
          for (int64_t i = 0; i < tiles_of(args); ++i) compute(args, i);
          c_.prepared[thread].input = input;
        }
        run(own, tile);
      });
      return;
    }
    const auto args = prepare(prepared_);
    c_.team.label(HR_OP_NORM);
    c_.team.add(tiles_of(args), [args](int64_t tile, int) { compute(args, tile); });
    c_.team.label(op);
    c_.team.add(tiles, [x = prepared_, run](int64_t tile, int) { run(x, tile); });
  }
  static int64_t tiles_of(const RmsNormArgs& args) { return rms_norm_tiles(args); }
  static int64_t tiles_of(const QuantiseArgs& args) { return quantise_tiles(args); }
  static void compute(const RmsNormArgs& args, int64_t tile) { rms_norm_tile(args, tile); }
  static void compute(const QuantiseArgs& args, int64_t tile) { quantise_tile(args, tile); }

  // A product, or product and gate, of the norm of the hidden states.
  template <class Run>
  void add_normed(const Flow& flow, HrOp op, int64_t input, const float* norm, const HrLinear& reader, int64_t tiles,
                  Run run) {
    const RmsNormArgs args{flow.hidden, nullptr, norm, nullptr, flow.tokens, model_.hidden, model_.rms_eps, input_dtype_,
                           int8_reader(reader)};
    add_prepared(
        flow, op, input, tiles,
        [args](void* out) {
          RmsNormArgs mine = args;
          mine.out = out;
          return mine;
        },
        run);
  }

  static auto with_input(const LinearArgs& product) {
    return [product](const void* x, int64_t tile) {
      LinearArgs args = product;
      args.x = x;
      linear_tile(args, tile);
    };
  }

  // hidden += x · weight, x [M, K] of input_dtype_.
  void add_to_hidden(const Flow& flow, HrOp op, int64_t input, const HrLinear& weight, const char* x) {
    const LinearArgs product{&weight, x, flow.tokens, flow.hidden, flow.hidden};
    if (weight.dtype != HR_INT8) return add_linear(op, product);
    const QuantiseArgs quantise{&weight, reinterpret_cast<const float*>(x), nullptr, flow.tokens};
    add_prepared(
        flow, op, input, linear_tiles(product),
        [quantise](void* out) {
          QuantiseArgs mine = quantise;
          mine.out = out;
          return mine;
        },
        with_input(product));
  }

  void add_linear(HrOp op, const LinearArgs& args) {
    c_.team.label(op);
    c_.team.add(linear_tiles(args), [args](int64_t tile, int) { linear_tile(args, tile); });
  }

  // Queries, keys and values of all tokens; the latter two to their slots.
  void add_keys(int32_t index) {
    const HrLayer& layer = model_.layer[index];
    const LinearArgs qkv{&layer.qkv, nullptr, in_.tokens, nullptr, qkv_};
    add_normed(all_, HR_OP_QKV, 4 * index, layer.attention_norm, layer.qkv, linear_tiles(qkv), with_input(qkv));
    const RopeKvArgs rope{qkv_,         q_,           in_.pool,         positions_,       blocks_,       model_.cos, model_.sin,
                          in_.tokens,   model_.heads, model_.kv_heads,  model_.head_dim,  model_.layers, index,
                          kv_dtype_,    layer.q_norm, layer.k_norm,     model_.rms_eps};
    c_.team.label(HR_OP_ROPE_KV);
    c_.team.add(rope_kv_tiles(rope), [rope](int64_t tile, int) { rope_kv_tile(rope, tile); });
  }

  // What the last layer goes on with: the hidden states and queries of the ends.
  void add_ends() {
    c_.team.label(HR_OP_ATTENTION);
    c_.team.add(ends_.tokens, [this](int64_t i, int) {
      const int64_t token = c_.end_tokens[i];
      std::copy_n(all_.hidden + token * model_.hidden, model_.hidden, ends_.hidden + i * model_.hidden);
      std::copy_n(q_ + token * query_bytes(), query_bytes(), end_q_ + i * query_bytes());
    });
  }

  // `plans` are of `rows`, whose tokens lie in `flow` and `q` as their `start` says.
  void add_attention(int32_t index, const Flow& flow, const HrRow* rows, AttentionPlan* plans, const char* q) {
    const int32_t windowed = model_.layer[index].is_windowed;
    const AttentionArgs attention{q,            attended_,        in_.pool,        rows,          plans + windowed,
                                  model_.heads, model_.kv_heads,  model_.head_dim, model_.layers, index,
                                  model_.scale, window(windowed), kv_dtype_,       input_dtype_};
    c_.team.label(HR_OP_ATTENTION);
    c_.team.add(attention_tiles(attention), [attention](int64_t tile, int) { attention_tile(attention, tile); });
    add_to_hidden(flow, HR_OP_O, 4 * index + 1, model_.layer[index].o, attended_);
  }

  void add_feed_forward(int32_t index, const Flow& flow) {
    const HrLayer& layer = model_.layer[index];
    if (gate_up_fits(layer.gate_up)) {
      const GateUpArgs gate_up{&layer.gate_up, nullptr, flow.tokens, gated_};
      add_normed(flow, HR_OP_GATE_UP, 4 * index + 2, layer.ffn_norm, layer.gate_up, gate_up_tiles(gate_up),
                 [gate_up](const void* x, int64_t tile) {
                   GateUpArgs args = gate_up;
                   args.x = x;
                   gate_up_tile(args, tile);
                 });
    } else {
      add_gate_after_product(flow, 4 * index + 2, layer);
    }
    add_to_hidden(flow, HR_OP_DOWN, 4 * index + 3, layer.down, gated_);
  }

  void add_gate_after_product(const Flow& flow, int64_t input, const HrLayer& layer) {
    float* sums = c_.gate_up.at_least<float>(static_cast<size_t>(in_.tokens) * layer.gate_up.n);
    const LinearArgs product{&layer.gate_up, nullptr, flow.tokens, nullptr, sums};
    add_normed(flow, HR_OP_GATE_UP, input, layer.ffn_norm, layer.gate_up, linear_tiles(product), with_input(product));
    const SwigluArgs gate{sums, gated_, flow.tokens, model_.ffn, input_dtype_};
    c_.team.label(HR_OP_SWIGLU);
    c_.team.add(swiglu_tiles(gate), [gate](int64_t tile, int) { swiglu_tile(gate, tile); });
  }

  // From hidden states to tokens. How many rows draw is known only when all hidden states are.
  void add_head() {
    c_.team.label(HR_OP_HEAD);
    c_.team.add(in_.row_count, [this](int64_t r, int) {
      HrRow& row = in_.rows[r];
      const int32_t end = c_.end_of[r];
      const int32_t ends = row.score_count ? row.tokens : 1;
      row.is_nan = !all_finite(all_.hidden + int64_t{row.start} * model_.hidden, int64_t{row.tokens} * model_.hidden) ||
                   (end >= 0 && !all_finite(ends_.hidden + int64_t{end + 1 - ends} * model_.hidden,
                                            int64_t{ends} * model_.hidden));
    });
    add_scores();
    c_.team.add(1, [this](int64_t, int) {
      for (int32_t r = 0; r < in_.row_count; ++r) {
        HrRow& row = in_.rows[r];
        if (!(in_.logits || row.draws) || (row.is_nan && !in_.logits)) continue;
        c_.drawn.push_back(c_.end_of[r]);
        draw_from_last_head(row);
        for (int32_t i = 0; i < row.fork_count; ++i) draw_from_last_head(row.forks[i]);
      }
    });
    c_.team.add_counted([this] { return rms_norm_tiles(drawn_norm()); },
                        [this](int64_t tile, int) { rms_norm_tile(drawn_norm(), tile); });
    c_.team.add_counted([this] { return linear_tiles(head()); }, [this](int64_t tile, int) { linear_tile(head(), tile); });
    c_.team.label(HR_OP_SAMPLE);
    c_.team.add_counted([this] { return adjust_tiles(adjust()); }, [this](int64_t tile, int) { adjust_tile(adjust(), tile); });
    c_.team.add_counted([this] { return sample_tiles(sample()); }, [this](int64_t tile, int) { sample_tile(sample(), tile); });
  }

  // A few tokens at a time, so that the room for their logits stays small.
  void add_scores() {
    const int32_t count = static_cast<int32_t>(c_.scores.size());
    for (int32_t first = 0; first < count; first += SCORED_TOGETHER) {
      const int32_t tokens = std::min(SCORED_TOGETHER, count - first);
      const RmsNormArgs norm = final_norm(c_.scored.data() + first, tokens);
      const ScoreArgs scores{score_logits_, model_.vocab, tokens, c_.scores.data() + first};
      c_.team.add(rms_norm_tiles(norm), [norm](int64_t tile, int) { rms_norm_tile(norm, tile); });
      add_linear(HR_OP_HEAD, {model_.head, head_input_, tokens, nullptr, score_logits_});
      c_.team.add(score_tiles(scores), [scores](int64_t tile, int) { score_tile(scores, tile); });
    }
  }

  int32_t heads() const { return static_cast<int32_t>(c_.drawn.size()); }
  int32_t drawing() const { return static_cast<int32_t>(c_.drawing.size()); }
  RmsNormArgs final_norm(const int32_t* ends, int32_t count) const {
    return {ends_.hidden, ends, model_.final_norm, head_input_, count, model_.hidden, model_.rms_eps,
            input_dtype_, int8_reader(*model_.head)};
  }
  RmsNormArgs drawn_norm() const { return final_norm(c_.drawn.data(), heads()); }
  LinearArgs head() const { return {model_.head, head_input_, heads(), nullptr, logits_}; }
  AdjustArgs adjust() const {
    return {logits_, model_.vocab, static_cast<int32_t>(c_.adjustments.size()), c_.adjustments.data()};
  }
  SampleArgs sample() const {
    return {logits_,        model_.vocab, drawing(), c_.drawing.data(), c_.heads.data(), c_.adjusted_of.data(),
            c_.states.get()};
  }

  // Readers in other processes trust what lies below a fill count.
  void publish(const HrRow& row) const {
    const int32_t T = in_.pool->block_tokens, end = row.base + row.tokens;
    for (int32_t i = row.base / T; i * T < end; ++i) {
      const uint32_t filled = static_cast<uint32_t>(std::min(end - i * T, T));
      __atomic_store_n(in_.pool->fill_counts + row.table[i], filled, __ATOMIC_RELEASE);
    }
  }

  HrContext& c_;
  const StepInput& in_;
  const HrModel& model_;
  Flow all_, ends_;  // the step's tokens; the last ones of rows that draw
  int32_t input_dtype_, kv_dtype_;
  size_t own_bytes_;
  float *qkv_, *logits_, *adjusted_, *score_logits_;
  char *prepared_, *q_, *end_q_, *attended_, *gated_, *head_input_;
  int32_t *positions_, *blocks_;
};

}  // namespace

void run_step(HrContext& context, const StepInput& input) {
  context.team.begin();
  context.team.rouse();
  Step(context, input).run();
}

}  // namespace hr
