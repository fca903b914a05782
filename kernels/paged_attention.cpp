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

// into = into merged with the piece to its right, row by row; what either sees nothing of is as the other has it.
void merge(PieceResult& into, const PieceResult& piece, int rows, int head_dim) {
  const F16 merged = max(load(into.top), load(piece.top));
  const F16 before = exp_to_88(load(into.top) - merged), after = exp_to_88(load(piece.top) - merged);
  float tops[LANES], sums[LANES], lefts[LANES], rights[LANES];
  store(tops, merged);
  store(sums, fma(load(piece.sum), after, load(into.sum) * before));
  store(lefts, before);
  store(rights, after);
  for (int r = 0; r < rows; ++r) {
    if (piece.sum[r] == 0.0f) continue;
    float* o = into.o + r * head_dim;
    const float* right = piece.o + r * head_dim;
    if (into.sum[r] == 0.0f) {
      into.top[r] = piece.top[r];
      into.sum[r] = piece.sum[r];
      std::copy_n(right, head_dim, o);
      continue;
    }
    into.top[r] = tops[r];
    into.sum[r] = sums[r];
    for (int d = 0; d < head_dim; d += LANES) {
      store(o + d, fma(load(right + d), splat(rights[r]), load(o + d) * splat(lefts[r])));
    }
  }
}

template <class Class>
class Tile {
  using Element = typename Class::Element;

 public:
  Tile(const AttentionArgs& args, const AttentionItem& item, int head)
      : args_(args), item_(item), head_(head), group_(args.heads / args.kv_heads), row_(args.rows[item.row]) {
    each_query([&](int r, int token, int64_t at) {
      const Span seen = seen_by(row_, token, args.window);
      query_.first_seen[r] = seen.first;
      query_.end_seen[r] = seen.end;
      const Element* from = static_cast<const Element*>(args.q) + at;
      Element* to = reinterpret_cast<Element*>(query_.words + r * ROW_WORDS);
      for (int d = 0; d < args.head_dim; d += LANES) std::memcpy(to + d, from + d, LANES * sizeof(Element));
    });
    for (int r = item.rows; r < MAX_ROWS; ++r) {
      query_.first_seen[r] = query_.first_seen[item.rows - 1];
      query_.end_seen[r] = query_.end_seen[item.rows - 1];
      std::fill_n(query_.words + r * ROW_WORDS, args.head_dim / Class::MEMBERS, 0u);
    }
  }

  // Another tile's keys are asked for while this one's values are read.
  void look_ahead(const AttentionItem& item, int head) {
    const HrRow& row = args_.rows[item.row];
    next_ = piece_of(row, seen_by_rows(row, item.first, item.rows, group_, args_.window), item.piece, head);
  }

  void run() {
    if (item_.partial >= 0) return run_part();
    PieceResult whole, right;
    compute(item_.piece, whole);
    for (int piece = item_.piece + 1; piece < item_.piece + item_.pieces; ++piece) {
      compute(piece, right);
      merge(whole, right, item_.rows, args_.head_dim);
    }
    finish(whole);
  }

 private:
  // Calls run(r, token, element) for each query row of the item: its token of the step row, its first element in q and out.
  template <class Run>
  HR_INLINE void each_query(Run run) const {
    int token = item_.first / group_, query_head = item_.first % group_;
    for (int r = 0; r < item_.rows; ++r) {
      run(r, token, ((int64_t{row_.start} + token) * args_.heads + head_ * group_ + query_head) * args_.head_dim);
      if (++query_head < group_) continue;
      query_head = 0;
      ++token;
    }
  }

  void finish(const PieceResult& whole) const {
    each_query([&](int r, int, int64_t at) {
      if (args_.out_dtype == HR_FLOAT32) {
        divide(whole, r, static_cast<float*>(args_.out) + at);
      } else {
        divide(whole, r, static_cast<Element*>(args_.out) + at);
      }
    });
  }
  template <class Out>
  void divide(const PieceResult& whole, int r, Out* out) const {
    const float* o = whole.o + r * args_.head_dim;
    for (int d = 0; d < args_.head_dim; d += LANES) store_as(out + d, load(o + d) / splat(whole.sum[r]), LANES);
  }

  // A piece alone; whoever completes the last one of the row merges them all.
  void run_part() {
    AttentionPlan& plan = *args_.plan;
    const int H = args_.kv_heads;
    const auto at = [&](int part) -> PieceResult& { return plan.partials[(item_.partial + part) * H + head_]; };
    const Span seen = seen_by_rows(row_, item_.first, item_.rows, group_, args_.window);
    compute(item_.piece, at(item_.piece - seen.first_piece()));
    std::atomic<int32_t>& counter = plan.counters[item_.counter * H + head_];
    if (counter.fetch_add(1, std::memory_order_acq_rel) + 1 < item_.parts) return;
    counter.store(0, std::memory_order_relaxed);
    PieceResult& whole = at(0);
    for (int part = 1; part < item_.parts; ++part) merge(whole, at(part), item_.rows, args_.head_dim);
    finish(whole);
  }

  void compute(int piece, PieceResult& result) {
    tiles_ = piece_of(row_, seen_by_rows(row_, item_.first, item_.rows, group_, args_.window), piece, head_);
    dispatch(result);
  }

  PieceTiles piece_of(const HrRow& row, const Span& seen, int piece, int head) const {
    PieceTiles tiles;
    tiles.start = piece * PIECE_TOKENS;
    tiles.end = std::min(seen.end, tiles.start + PIECE_TOKENS);
    tiles.first_group = std::max(0, seen.first - tiles.start) / LANES;
    tiles.end_group = (tiles.end - tiles.start + LANES - 1) / LANES;
    const int T = args_.pool->block_tokens, D = args_.head_dim;
    const KvShape shape{args_.layers, args_.kv_heads, T, D};
    const int first = tiles.start + tiles.first_group * LANES;
    int slot = first % T;
    const int32_t* block = row.table + first / T;
    for (int group = tiles.first_group; group < tiles.end_group; ++group) {
      const auto* keys = kv_tile<Class>(args_.pool->kv, shape, *block, args_.layer, 0, head);
      const auto* values = kv_tile<Class>(args_.pool->kv, shape, *block, args_.layer, 1, head);
      tiles.keys[group] = reinterpret_cast<const uint32_t*>(keys) + slot;
      tiles.values[group] = reinterpret_cast<const uint32_t*>(values + int64_t{slot} * D);
      slot += LANES;
      if (slot < T) continue;
      slot = 0;
      ++block;
    }
    return tiles;
  }

  // The narrowest kernel that holds the rows.
  void dispatch(PieceResult& result) {
    const int rows = item_.rows;
    if (rows <= 1) return kernel<1>(result);
    if (rows <= 2) return kernel<2>(result);
    if (rows <= 3) return kernel<3>(result);
    if (rows <= 4 || MAX_ROWS == 4) return kernel<4>(result);
    if (rows <= 6 || MAX_ROWS == 6) return kernel<std::min(6, MAX_ROWS)>(result);
    if (rows <= 8) return kernel<std::min(8, MAX_ROWS)>(result);
    kernel<std::min(12, MAX_ROWS)>(result);
  }
  template <int R>
  __attribute__((noinline)) void kernel(PieceResult& result) {
    PieceKernel<Class, R>(query_, tiles_, next_, args_.pool->block_tokens, args_.head_dim, args_.scale).run(result);
  }

  const AttentionArgs& args_;
  const AttentionItem& item_;
  const int head_, group_;
  const HrRow& row_;
  QueryRows query_;
  PieceTiles tiles_, next_;
};

}  // namespace

void plan_attention(AttentionPlan& plan, const HrRow* rows, int32_t row_count, int32_t heads, int32_t kv_heads,
                    int32_t window) {
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
  const size_t results = static_cast<size_t>(parts) * kv_heads;
  if (plan.partials.size() < results) plan.partials.resize(results);
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
