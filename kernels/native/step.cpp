// Norms of few tokens are computed by each thread for itself, right before the product that reads them: cheaper than a
// phase. Of the last layer's tokens only those that draw go past its keys and values: nobody reads the others.
//
// A layer's results stay where they are while the next few layers are computed, each in memory of its own: so long may a
// thread be late with a tile that another has computed meanwhile.
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
constexpr int64_t KEPT_BYTES = int64_t{1} << 20;  // of layers' results; more where one layer's take more

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
    input_dtype_ = input_dtype(model_.dtype);
    kv_dtype_ = kv_dtype(model_.dtype);
    most_token_bytes_ = most_token_bytes();
    gates_at_once_ = gates_at_once();
    own_bytes_ = rounded_up(std::min<int64_t>(in_.tokens, FEW_TOKENS) * most_token_bytes_, LINE_BYTES);
    own_ = c_.own.at_least<char>(own_bytes_ * c_.prepared.size());
    make_room_for_layers();
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
    const EmbeddingArgs embedding{model_.embedding, in_.ids, in_.tokens, hidden(0)};
    c_.team.label(HR_OP_EMBEDDING);
    c_.team.add_repeatable(embedding_tiles(embedding), [embedding](int64_t tile, int) { embedding_tile(embedding, tile); });
    for (int32_t layer = 0; layer + 1 < model_.layers; ++layer) {
      const Kept kept = begin_layer(layer);
      add_keys(layer, kept);
      add_attention(layer, kept, in_.rows, c_.plans);
      add_feed_forward(layer, kept);
    }
    const int32_t last = model_.layers - 1;
    const Kept kept = begin_layer(last), ends = ends_of(kept);
    add_keys(last, kept);
    add_ends(kept, ends);
    add_attention(last, ends, c_.ends.data(), c_.end_plans);
    add_feed_forward(last, ends);
    add_head();
    c_.team.lap(HR_OP_PREPARE);
    c_.team.run();
    for (int32_t r = 0; r < in_.row_count; ++r) {
      if (!in_.rows[r].is_nan) publish(in_.rows[r]);
    }
    c_.team.lap(HR_OP_PUBLISH);
  }

 private:
  // What a layer computes of tokens that go through it together.
  struct Kept {
    int32_t tokens;
    float *hidden, *middle, *out;  // [tokens, hidden]: what goes in, what has seen attention, what comes out
    float *qkv, *sums;             // [tokens, (Q + 2 H) D]; [tokens, 2 F] where the gate is not computed at once
    char *q, *attended, *gated;    // [tokens, Q D], [tokens, Q D], [tokens, F]
    char* prepared[4];             // the inputs of its products, where these are prepared in phases of their own
    bool is_few() const { return tokens <= FEW_TOKENS; }
  };
  enum Product { QKV, O, GATE_UP, DOWN };

  bool has_layer(int32_t windowed) const {
    return std::any_of(model_.layer, model_.layer + model_.layers,
                       [=](const HrLayer& layer) { return layer.is_windowed == windowed; });
  }
  int32_t window(int32_t windowed) const { return windowed ? model_.window : 0; }
  void plan(AttentionPlan& plan, const HrRow* rows, int32_t row_count, int32_t windowed) const {
    plan_attention(plan, rows, row_count, model_.heads, model_.kv_heads, window(windowed));
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
    end_hidden_ = c_.end_hidden.at_least<float>(count * model_.hidden);
    end_q_ = c_.end_q.at_least<char>(count * query_bytes());
  }

  // Memory for the results of as many layers as are kept.
  void make_room_for_layers() {
    Kept kept;
    kept.tokens = in_.tokens;
    hidden_bytes_ = rounded_up(int64_t{in_.tokens} * model_.hidden * int64_t{sizeof(float)}, LINE_BYTES);
    layer_bytes_ = lay_out(kept, 0);
    kept_layers_ = static_cast<int32_t>(std::clamp<int64_t>(KEPT_BYTES / layer_bytes_, 1, model_.layers));
    layers_ = c_.layers.at_least<char>(kept_layers_ * layer_bytes_);
    hidden_ = c_.hidden.at_least<char>((kept_layers_ + 1) * hidden_bytes_);
    c_.layer_begin.assign(static_cast<size_t>(model_.layers), 0);
  }

  // Places what a layer keeps behind each other from this address on. Returns how many bytes that are.
  int64_t lay_out(Kept& kept, uintptr_t base) const {
    const int64_t M = in_.tokens, kv = int64_t{model_.kv_heads} * model_.head_dim;
    const int64_t width = int64_t{model_.heads} * model_.head_dim, bytes = element_bytes(input_dtype_);
    int64_t end = 0;
    const auto take = [&](int64_t token_bytes) {
      const uintptr_t at = base + static_cast<uintptr_t>(end);
      end += rounded_up(M * token_bytes, LINE_BYTES);
      return reinterpret_cast<char*>(at);
    };
    const auto take_floats = [&](int64_t count) {
      return reinterpret_cast<float*>(take(count * int64_t{sizeof(float)}));
    };
    kept.middle = take_floats(model_.hidden);
    kept.qkv = take_floats(width + 2 * kv);
    kept.sums = take_floats(gates_at_once_ ? 0 : 2 * int64_t{model_.ffn});
    kept.q = take(int64_t(query_bytes()));
    kept.attended = take(width * bytes);
    kept.gated = take(model_.ffn * bytes);
    for (char*& prepared : kept.prepared) prepared = take(kept.is_few() ? 0 : most_token_bytes_);
    return end;
  }

  bool gates_at_once() const {
    return std::all_of(model_.layer, model_.layer + model_.layers,
                       [](const HrLayer& layer) { return gate_up_fits(layer.gate_up); });
  }

  float* hidden(int32_t layer) const {
    return reinterpret_cast<float*>(hidden_ + layer % (kept_layers_ + 1) * hidden_bytes_);
  }

  // Nobody may be in the layer whose memory this one takes.
  Kept begin_layer(int32_t layer) {
    c_.layer_begin[layer] = c_.team.phases();
    if (layer >= kept_layers_) c_.team.leave(c_.layer_begin[layer - kept_layers_ + 1]);
    Kept kept;
    kept.tokens = in_.tokens;
    kept.hidden = hidden(layer);
    kept.out = hidden(layer + 1);
    lay_out(kept, reinterpret_cast<uintptr_t>(layers_ + layer % kept_layers_ * layer_bytes_));
    return kept;
  }

  // The last layer goes on with the ends alone.
  Kept ends_of(const Kept& all) const {
    Kept ends = all;
    ends.tokens = static_cast<int32_t>(c_.end_tokens.size());
    ends.hidden = end_hidden_;
    ends.q = end_q_;
    return ends;
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
  int64_t most_token_bytes() const {
    int64_t most = 0;
    for (int32_t i = 0; i < model_.layers; ++i) {
      const HrLayer& layer = model_.layer[i];
      for (const HrLinear* weight : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
        most = std::max(most, token_bytes(*weight));
      }
    }
    return most;
  }

  const HrLinear* int8_reader(const HrLinear& weight) const { return weight.dtype == HR_INT8 ? &weight : nullptr; }

  // A product of a layer whose input is prepared first: prepare(out) gives the tiles that write it, run(x, tile) computes a
  // tile of the product.
  template <class Prepare, class Run>
  void add_prepared(const Kept& kept, HrOp op, int32_t layer, Product product, int64_t tiles, Prepare prepare, Run run) {
    c_.team.label(op);
    if (kept.is_few()) {
      c_.team.add_repeatable(tiles, [this, input = 4 * layer + product, prepare, run](int64_t tile, int thread) {
        char* own = own_ + own_bytes_ * thread;
        if (c_.prepared[thread].input != input) {
          const auto args = prepare(own);
          for (int64_t i = 0; i < tiles_of(args); ++i) compute(args, i);
          c_.prepared[thread].input = input;
        }
        run(own, tile);
      });
      return;
    }
    char* prepared = kept.prepared[product];
    const auto args = prepare(prepared);
    c_.team.label(HR_OP_NORM);
    c_.team.add_repeatable(tiles_of(args), [args](int64_t tile, int) { compute(args, tile); });
    c_.team.label(op);
    c_.team.add_repeatable(tiles, [prepared, run](int64_t tile, int) { run(prepared, tile); });
  }
  static int64_t tiles_of(const RmsNormArgs& args) { return rms_norm_tiles(args); }
  static int64_t tiles_of(const QuantiseArgs& args) { return quantise_tiles(args); }
  static void compute(const RmsNormArgs& args, int64_t tile) { rms_norm_tile(args, tile); }
  static void compute(const QuantiseArgs& args, int64_t tile) { quantise_tile(args, tile); }

  // A product, or product and gate, of the norm of the hidden states `x`.
  template <class Run>
  void add_normed(const Kept& kept, HrOp op, int32_t layer, Product product, const float* x, const float* norm,
                  const HrLinear& reader, int64_t tiles, Run run) {
    const RmsNormArgs args{x, nullptr, norm, nullptr, kept.tokens, model_.hidden, model_.rms_eps, input_dtype_,
                           int8_reader(reader)};
    add_prepared(
        kept, op, layer, product, tiles,
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

  // to = from + x · weight, x [M, K] of input_dtype_.
  void add_residual(const Kept& kept, HrOp op, int32_t layer, Product which, const HrLinear& weight, const char* x,
                    const float* from, float* to) {
    const LinearArgs product{&weight, x, kept.tokens, from, to};
    if (weight.dtype != HR_INT8) {
      c_.team.label(op);
      c_.team.add_repeatable(linear_tiles(product), [product](int64_t tile, int) { linear_tile(product, tile); });
      return;
    }
    const QuantiseArgs quantise{&weight, reinterpret_cast<const float*>(x), nullptr, kept.tokens};
    add_prepared(
        kept, op, layer, which, linear_tiles(product),
        [quantise](void* out) {
          QuantiseArgs mine = quantise;
          mine.out = out;
          return mine;
        },
        with_input(product));
  }

  // Queries, keys and values of all tokens; the latter two to their slots.
  void add_keys(int32_t index, const Kept& kept) {
    const HrLayer& layer = model_.layer[index];
    const LinearArgs qkv{&layer.qkv, nullptr, kept.tokens, nullptr, kept.qkv};
    add_normed(kept, HR_OP_QKV, index, QKV, kept.hidden, layer.attention_norm, layer.qkv, linear_tiles(qkv),
               with_input(qkv));
    const RopeKvArgs rope{kept.qkv,     kept.q,       in_.pool,         positions_,       blocks_,       model_.cos, model_.sin,
                          kept.tokens,  model_.heads, model_.kv_heads,  model_.head_dim,  model_.layers, index,
                          kv_dtype_,    layer.q_norm, layer.k_norm,     model_.rms_eps};
    c_.team.label(HR_OP_ROPE_KV);
    c_.team.add_repeatable(rope_kv_tiles(rope), [rope](int64_t tile, int) { rope_kv_tile(rope, tile); });
  }

  // What the last layer goes on with: the hidden states and queries of the ends.
  void add_ends(const Kept& all, const Kept& ends) {
    c_.team.label(HR_OP_ATTENTION);
    c_.team.add_repeatable(ends.tokens, [this, all, ends](int64_t i, int) {
      const int64_t token = c_.end_tokens[i];
      std::copy_n(all.hidden + token * model_.hidden, model_.hidden, ends.hidden + i * model_.hidden);
      std::copy_n(all.q + token * query_bytes(), query_bytes(), ends.q + i * query_bytes());
    });
  }

  // `plans` are of `rows`, whose tokens lie in `kept` as their `start` says.
  void add_attention(int32_t index, const Kept& kept, const HrRow* rows, AttentionPlan* plans) {
    const int32_t windowed = model_.layer[index].is_windowed;
    const AttentionArgs attention{kept.q,       kept.attended,    in_.pool,        rows,          plans + windowed,
                                  model_.heads, model_.kv_heads,  model_.head_dim, model_.layers, index,
                                  model_.scale, window(windowed), kv_dtype_,       input_dtype_};
    const auto tile = [attention](int64_t tile, int) { attention_tile(attention, tile); };
    c_.team.label(HR_OP_ATTENTION);
    if (is_split(plans[windowed])) {
      c_.team.add(attention_tiles(attention), tile);
    } else {
      c_.team.add_repeatable(attention_tiles(attention), tile);
    }
    add_residual(kept, HR_OP_O, index, O, model_.layer[index].o, kept.attended, kept.hidden, kept.middle);
  }

  void add_feed_forward(int32_t index, const Kept& kept) {
    const HrLayer& layer = model_.layer[index];
    if (gate_up_fits(layer.gate_up)) {
      const GateUpArgs gate_up{&layer.gate_up, nullptr, kept.tokens, kept.gated};
      add_normed(kept, HR_OP_GATE_UP, index, GATE_UP, kept.middle, layer.ffn_norm, layer.gate_up, gate_up_tiles(gate_up),
                 [gate_up](const void* x, int64_t tile) {
                   GateUpArgs args = gate_up;
                   args.x = x;
                   gate_up_tile(args, tile);
                 });
    } else {
      add_gate_after_product(kept, index);
    }
    add_residual(kept, HR_OP_DOWN, index, DOWN, layer.down, kept.gated, kept.middle, kept.out);
  }

  void add_gate_after_product(const Kept& kept, int32_t index) {
    const HrLayer& layer = model_.layer[index];
    const LinearArgs product{&layer.gate_up, nullptr, kept.tokens, nullptr, kept.sums};
    add_normed(kept, HR_OP_GATE_UP, index, GATE_UP, kept.middle, layer.ffn_norm, layer.gate_up, linear_tiles(product),
               with_input(product));
    const SwigluArgs gate{kept.sums, kept.gated, kept.tokens, model_.ffn, input_dtype_};
    c_.team.label(HR_OP_SWIGLU);
    c_.team.add_repeatable(swiglu_tiles(gate), [gate](int64_t tile, int) { swiglu_tile(gate, tile); });
  }

  // From hidden states to tokens. How many rows draw is known only when all hidden states are.
  void add_head() {
    c_.team.label(HR_OP_HEAD);
    c_.team.add(in_.row_count, [this](int64_t r, int) {
      HrRow& row = in_.rows[r];
      const int32_t end = c_.end_of[r];
      const int32_t ends = row.score_count ? row.tokens : 1;
      const float* last = hidden(model_.layers - 1) + int64_t{row.start} * model_.hidden;
      row.is_nan = !all_finite(last, int64_t{row.tokens} * model_.hidden) ||
                   (end >= 0 && !all_finite(ends_out() + int64_t{end + 1 - ends} * model_.hidden,
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
    const LinearArgs all_heads{model_.head, head_input_, static_cast<int64_t>(c_.ends.size()), nullptr, logits_};
    c_.team.add_repeatable(
        linear_tiles(all_heads), [this] { return linear_tiles(head()); },
        [this](int64_t tile, int) { linear_tile(head(), tile); });
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
      const LinearArgs logits{model_.head, head_input_, tokens, nullptr, score_logits_};
      c_.team.add(linear_tiles(logits), [logits](int64_t tile, int) { linear_tile(logits, tile); });
      c_.team.add(score_tiles(scores), [scores](int64_t tile, int) { score_tile(scores, tile); });
    }
  }

  // The ends' hidden states behind the last layer.
  const float* ends_out() const { return hidden(model_.layers); }
  int32_t heads() const { return static_cast<int32_t>(c_.drawn.size()); }
  int32_t drawing() const { return static_cast<int32_t>(c_.drawing.size()); }
  RmsNormArgs final_norm(const int32_t* ends, int32_t count) const {
    return {ends_out(), ends, model_.final_norm, head_input_, count, model_.hidden, model_.rms_eps,
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
  int32_t input_dtype_, kv_dtype_, kept_layers_;
  size_t own_bytes_;
  int64_t most_token_bytes_, hidden_bytes_, layer_bytes_;
  bool gates_at_once_;
  float *logits_, *adjusted_, *score_logits_, *end_hidden_;
  char *own_, *hidden_, *layers_, *end_q_, *head_input_;
  int32_t *positions_, *blocks_;
};

}  // namespace

void run_step(HrContext& context, const StepInput& input) {
  context.team.begin();
  context.team.rouse();
  Step(context, input).run();
}

}  // namespace hr
