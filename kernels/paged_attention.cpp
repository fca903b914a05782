#include "native/paged_attention.h"

#include <algorithm>

#include "native/attention_piece.h"

namespace hr {
namespace {

struct Span {
  int first, end;  // absolute positions [first, end)
  int first_piece() const { return first / PIECE_TOKENS; }
  int end_piece() const { return (end + PIECE_TOKENS - 1) / PIECE_TOKENS; }
};

Span seen_by(const HrRow& row, int token, int window) {
  const int end = row.base + token + 1;
  return {window > 0 ? std::max(0, end - window) : 0, end};
}
Span seen_by_rows(const HrRow& row, int first, int rows, int group, int window) {
  return {seen_by(row, first / group, window).first, seen_by(row, (first + rows - 1) / group, window).end};
}

// A row's result so far: maximum, sum of exponentials (0: no piece yet), weighted values [D].
struct Running {
  float top, sum;
  float* o;
};

// into = into merged with the piece to its right.
void merge(Running& into, float top, float sum, const float* o, int head_dim) {
  const float merged = into.top > top ? into.top : top;
  const F16 left = exp(splat(into.top - merged)), right = exp(splat(top - merged));
  for (int d = 0; d < head_dim; d += LANES) {
    store(into.o + d, fma(load(o + d), right, load(into.o + d) * left));
  }
  float sums[LANES];
  store(sums, fma(splat(sum), right, splat(into.sum) * left));
  into.top = merged;
  into.sum = sums[0];
}

template <class Class>
class Tile {
  using Element = typename Class::Element;

 public:
  Tile(const AttentionArgs& args, const AttentionItem& item, int head)
      : args_(args), item_(item), head_(head), group_(args.heads / args.kv_heads), row_(args.rows[item.row]) {
    const int words = args.head_dim / Class::MEMBERS;
    for (int r = 0; r < MAX_ROWS; ++r) {
      const int e = item.first + std::min(r, item.rows - 1);
      const Span seen = seen_by(row_, e / group_, args.window);
      query_.first_seen[r] = seen.first;
      query_.end_seen[r] = seen.end;
      uint32_t* to = query_.words + r * ROW_WORDS;
      if (r < item.rows) {
        std::memcpy(to, static_cast<const Element*>(args.q) + element(e), words * sizeof(uint32_t));
      } else {
        std::fill_n(to, words, 0u);
      }
    }
  }

  // Another tile's keys are asked for while this one's values are read.
  void look_ahead(const AttentionItem& item, int head) {
    const HrRow& row = args_.rows[item.row];
    next_ = piece_of(row, seen_by_rows(row, item.first, item.rows, group_, args_.window), item.piece, head);
  }

  void run() {
    if (item_.partial >= 0) return run_part();
    float o[MAX_ROWS * MAX_HEAD_DIM];
    Running running[MAX_ROWS];
    for (int r = 0; r < item_.rows; ++r) running[r] = {0.0f, 0.0f, o + r * args_.head_dim};
    for (int piece = item_.piece; piece < item_.piece + item_.pieces; ++piece) {
      compute(piece);
      for (int r = 0; r < item_.rows; ++r) take(running[r], result_.top[r], result_.sum[r], result_.o + r * args_.head_dim);
    }
    for (int r = 0; r < item_.rows; ++r) finish(r, running[r]);
  }

 private:
  int64_t element(int e) const {
    return (int64_t{row_.start + e / group_} * args_.heads + head_ * group_ + e % group_) * args_.head_dim;
  }

  void take(Running& running, float top, float sum, const float* o) const {
    if (sum == 0.0f) return;
    if (running.sum == 0.0f) {
      running.top = top;
      running.sum = sum;
      std::copy_n(o, args_.head_dim, running.o);
    } else {
      merge(running, top, sum, o, args_.head_dim);
    }
  }

  void finish(int r, const Running& running) const {
    if (args_.out_dtype == HR_FLOAT32) return divide(running, static_cast<float*>(args_.out) + element(item_.first + r));
    divide(running, static_cast<Element*>(args_.out) + element(item_.first + r));
  }
  template <class Out>
  void divide(const Running& running, Out* out) const {
    for (int d = 0; d < args_.head_dim; d += LANES) store_as(out + d, load(running.o + d) / splat(running.sum), LANES);
  }

  // A piece alone; whoever completes the last one of the row merges them all.
  void run_part() {
    AttentionPlan& plan = *args_.plan;
    const int D = args_.head_dim, H = args_.kv_heads;
    const int64_t stride = int64_t{MAX_ROWS} * (D + 2);
    const auto at = [&](int part) { return plan.partials.data() + ((item_.partial + part) * H + head_) * stride; };
    const Span seen = seen_by_rows(row_, item_.first, item_.rows, group_, args_.window);
    compute(item_.piece);
    float* mine = at(item_.piece - seen.first_piece());
    std::copy_n(result_.top, MAX_ROWS, mine);
    std::copy_n(result_.sum, MAX_ROWS, mine + MAX_ROWS);
    std::copy_n(result_.o, item_.rows * D, mine + 2 * MAX_ROWS);
    std::atomic<int32_t>& counter = plan.counters[item_.counter * H + head_];
    if (counter.fetch_add(1, std::memory_order_acq_rel) + 1 < item_.parts) return;
    counter.store(0, std::memory_order_relaxed);
    for (int r = 0; r < item_.rows; ++r) {
      float o[MAX_HEAD_DIM];
      Running running{0.0f, 0.0f, o};
      for (int part = 0; part < item_.parts; ++part) {
        take(running, at(part)[r], at(part)[MAX_ROWS + r], at(part) + 2 * MAX_ROWS + r * D);
      }
      finish(r, running);
    }
  }

  void compute(int piece) {
    tiles_ = piece_of(row_, seen_by_rows(row_, item_.first, item_.rows, group_, args_.window), piece, head_);
    dispatch();
  }

  PieceTiles piece_of(const HrRow& row, const Span& seen, int piece, int head) const {
    PieceTiles tiles;
    tiles.start = piece * PIECE_TOKENS;
    tiles.end = std::min(seen.end, tiles.start + PIECE_TOKENS);
    tiles.first_group = std::max(0, seen.first - tiles.start) / LANES;
    tiles.end_group = (tiles.end - tiles.start + LANES - 1) / LANES;
    const int T = args_.pool->block_tokens, D = args_.head_dim;
    const KvShape shape{args_.layers, args_.kv_heads, T, D};
    for (int group = tiles.first_group; group < tiles.end_group; ++group) {
      const int position = tiles.start + group * LANES;
      const int64_t block = row.table[position / T];
      const auto* keys = kv_tile<Class>(args_.pool->kv, shape, block, args_.layer, 0, head);
      const auto* values = kv_tile<Class>(args_.pool->kv, shape, block, args_.layer, 1, head);
      const int slot = position % T;
      tiles.keys[group] = reinterpret_cast<const uint32_t*>(keys) + slot;
      tiles.values[group] = reinterpret_cast<const uint32_t*>(values) + slot / Class::MEMBERS * D;
    }
    return tiles;
  }

  // The narrowest kernel that holds the rows.
  void dispatch() {
    const int rows = item_.rows;
    if (rows <= 1) return kernel<1>();
    if (rows <= 2) return kernel<2>();
    if (rows <= 3) return kernel<3>();
    if (rows <= 4 || MAX_ROWS == 4) return kernel<4>();
    if (rows <= 6 || MAX_ROWS == 6) return kernel<std::min(6, MAX_ROWS)>();
    if (rows <= 8) return kernel<std::min(8, MAX_ROWS)>();
    kernel<std::min(12, MAX_ROWS)>();
  }
  template <int R>
  __attribute__((noinline)) void kernel() {
    PieceKernel<Class, R>(query_, tiles_, next_, args_.pool->block_tokens, args_.head_dim, args_.scale).run(result_);
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  const int head_, group_;
  const HrRow& row_;
  QueryRows query_;
  PieceTiles tiles_, next_;
  PieceResult result_;
};

}  // namespace

void plan_attention(AttentionPlan& plan, const HrRow* rows, int32_t row_count, int32_t heads, int32_t kv_heads,
                    int32_t head_dim, int32_t window) {
  const int group = heads / kv_heads;
  int64_t parts = 0;
  int32_t split_rows = 0;
  plan.items.clear();
  for (int32_t row = 0; row < row_count; ++row) {
    const int count = rows[row].tokens * group;
    for (int first = 0; first < count; first += MAX_ROWS) {
      const int width = std::min(MAX_ROWS, count - first);
      const Span seen = seen_by_rows(rows[row], first, width, group, window);
      const int pieces = seen.end_piece() - seen.first_piece();
      AttentionItem item{row, first, width, seen.first_piece(), pieces, -1, 0, 0, 0};
      item.cost = int64_t{width + 2} * (seen.end - seen.first);
      if (count > MAX_ROWS || pieces == 1) {
        plan.items.push_back(item);
        continue;
      }
      for (int piece = 0; piece < pieces; ++piece) {
        const int start = (item.piece + piece) * PIECE_TOKENS;
        const int end = std::min(seen.end, start + PIECE_TOKENS);
        plan.items.push_back({row, first, width, item.piece + piece, 1, parts, split_rows, pieces,
                              int64_t{width + 2} * (end - std::max(seen.first, start))});
      }
      parts += pieces;
      ++split_rows;
    }
  }
  std::stable_sort(plan.items.begin(), plan.items.end(),
                   [](const AttentionItem& a, const AttentionItem& b) { return a.cost > b.cost; });
  const size_t floats = static_cast<size_t>(parts) * kv_heads * MAX_ROWS * (head_dim + 2);
  if (plan.partials.size() < floats) plan.partials.resize(floats);
  const size_t counters = static_cast<size_t>(split_rows) * kv_heads;
  if (plan.counters.size() < counters) plan.counters = std::vector<std::atomic<int32_t>>(counters);
}

int64_t attention_tiles(const AttentionArgs& args) {
  return static_cast<int64_t>(args.plan->items.size()) * args.kv_heads;
}

void attention_tile(const AttentionArgs& args, int64_t tile) {
  const AttentionItem& item = args.plan->items[tile / args.kv_heads];
  const int head = static_cast<int>(tile % args.kv_heads);  // heads of a block are neighbours in memory
  with_class(args.dtype, [&](auto kind) {
    Tile<decltype(kind)> own(args, item, head);
    if (const int64_t next = tile + TILES_AHEAD; item.rows <= FEW_ROWS && next < attention_tiles(args)) {
      own.look_ahead(args.plan->items[next / args.kv_heads], static_cast<int>(next % args.kv_heads));
    }
    own.run();
  });
}

}  // namespace hr
