// A team of threads that runs a program: phases one after the other, each a number of tiles that anyone may take.
//
// A phase ends when its tiles are done, not when its threads have met: whoever finishes the last tile starts the next
// phase. A thread that the system keeps away from its processor holds up nobody for long, either: where tiles may be
// repeated, one without work computes those that are late once more. The late thread then writes the same bits again,
// into memory that nobody uses for anything else before it has left. Which thread computes a tile never shows in a result.
// Between programs the workers sleep; inside one, a thread without work spins and then sleeps, too.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <new>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

namespace hr {

class Team {
 public:
  // `threads` counts the calling one. Throws std::system_error when they cannot be had.
  explicit Team(int threads);
  ~Team();

  int threads() const { return threads_; }

  // Appends a phase: `count()` gives the number of tiles when the phase begins, `tile(index, thread)` computes one. Both
  // are copied; what they point to lives until run() returns.
  template <class Count, class Tile>
  void add_counted(Count count, Tile tile) {
    struct Both {
      Count count;
      Tile tile;
    };
    static_assert(std::is_trivially_destructible_v<Both>);
    void* both = new (allocate(sizeof(Both))) Both{std::move(count), std::move(tile)};
    program_.push_back({op_, both, [](void* of) { return static_cast<Both*>(of)->count(); },
                        [](void* of, int64_t index, int thread) { static_cast<Both*>(of)->tile(index, thread); }, nullptr,
                        left_});
  }
  template <class Tile>
  void add(int64_t tiles, Tile tile) {
    add_counted([tiles] { return tiles; }, std::move(tile));
  }
  // Likewise, of at most `most` tiles that several threads may compute at once, one of them long after the others: what a
  // tile reads it does not write, and what it writes it writes once.
  template <class Count, class Tile>
  void add_repeatable(int64_t most, Count count, Tile tile) {
    add_counted(std::move(count), std::move(tile));
    program_.back().is_done = new_flags(most);
  }
  template <class Tile>
  void add_repeatable(int64_t tiles, Tile tile) {
    add_repeatable(tiles, [tiles] { return tiles; }, std::move(tile));
  }

  // The number of phases so far.
  int32_t phases() const { return static_cast<int32_t>(program_.size()); }
  // Phases added from here on begin only when no thread is in one of the first `phases` any more.
  void leave(int32_t phases) { left_ = phases; }
  // Phases added from here on are of this op.
  void label(int32_t op) { op_ = op; }
  // Adds the wall nanoseconds of each phase to ns[its op] from here on; null ends it. Not while a program runs.
  void watch(int64_t* ns) { watched_ns_ = ns; }
  // Adds the time since the last lap, or since begin(), to an op: what the caller does outside of phases.
  void lap(int32_t op) {
    if (watched_ns_) end_lap(op);
  }

  // Lets workers wake up while the program is still being written.
  void rouse();
  // An empty program; the first lap begins.
  void begin();
  // Runs the program, the calling thread included. All threads have left it when it returns.
  void run();
  // For tests: each thread is late by so many microseconds with every so many-th of its shares; 0: never.
  void be_late(int64_t every, int64_t microseconds) { late_every_ = every, late_us_ = microseconds; }

 private:
  using Flag = std::atomic<uint8_t>;
  struct Phase {
    int32_t op;
    void* of;
    int64_t (*count)(void*);
    void (*run)(void*, int64_t tile, int thread);
    Flag* is_done;  // by first tile of a share, where tiles may be repeated; else null
    int32_t left;   // how many of the first phases nobody may be in when it begins
  };
  static constexpr int32_t NOWHERE = INT32_MAX;
  struct alignas(64) Place {
    std::atomic<int32_t> phase{NOWHERE};  // that the thread may hold tiles of
    int64_t patience_us = 0;              // how long a share may well take
    int64_t shares = 0;                   // that it has computed
  };

  // What a thread takes first of a phase's tiles: neighbours, for memory is read faster in one long stream a thread than in
  // turns. Who has none left helps others. Taking tiles is one exchange of the ticket: nobody takes any of another phase.
  struct alignas(64) Part {
    std::atomic<uint64_t> ticket{0};
  };
  struct Share {
    int64_t begin, count;
    bool is_near_end;  // of its part
  };

  void* allocate(size_t bytes);
  Flag* new_flags(int64_t count);
  void end_lap(int32_t op);
  void start_phase(size_t index);
  void publish(uint64_t ticket);
  size_t index_of(uint64_t ticket) const;
  void enter(int thread, size_t index);
  void leave_all(int thread);
  void await_left(int32_t phases);
  bool is_left(int32_t phases) const;
  void work(int thread);
  bool work_share(uint64_t ticket, int thread);
  Share take(uint64_t ticket, int thread);
  static Share next_share(int64_t next, int64_t end);
  int64_t part_begin(int part, int64_t tiles) const;
  bool compute(const Phase& phase, const Share& share, int64_t tiles, int thread);
  bool compute_late(uint64_t ticket, int thread);
  void end_phase(size_t index);
  void be_late_with(int thread);
  bool spin_while(uint64_t ticket, int64_t microseconds);
  void sleep_while(uint64_t ticket);
  void serve(int thread);

  const int threads_;
  std::vector<Phase> program_;
  std::vector<std::unique_ptr<char[]>> arena_;
  size_t arena_used_ = 0;
  int32_t op_ = 0;
  int64_t* watched_ns_ = nullptr;
  int64_t lap_began_ns_ = 0;  // while somebody watches; written by whoever ends a phase
  int32_t left_ = 0;
  int64_t late_every_ = 0, late_us_ = 0;
  std::unique_ptr<Place[]> places_;  // [threads]
  std::unique_ptr<Part[]> parts_;    // [threads]
  std::vector<std::thread> workers_;

  // Of all tiles, none of them taken; published after the parts'.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  std::atomic<uint64_t> first_{0};  // the number of the program's first phase
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // goes up with each phase: what sleepers wait on
  std::atomic<uint32_t> sleepers_{0};
  alignas(64) std::atomic<uint32_t> leavings_{0};  // goes up when a thread leaves a phase and somebody waits for that
  std::atomic<uint32_t> awaiting_{0};
  std::atomic<bool> is_closing_{false};
};

}  // namespace hr
