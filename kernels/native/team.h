// A team of threads that runs a program: phases one after the other, each a number of tiles that anyone may take.
//
// A phase ends when its tiles are done, not when its threads have met: whoever finishes the last tile starts the next
// phase, so a thread that the system keeps away from its processor delays only the tiles it holds. Which thread computes
// a tile never shows in a result. Between programs the workers sleep; inside one, a thread without work spins for 50 µs
// and then sleeps, too.
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
                        [](void* of, int64_t begin, int64_t end, int thread) {
                          for (int64_t i = begin; i < end; ++i) static_cast<Both*>(of)->tile(i, thread);
                        }});
  }
  template <class Tile>
  void add(int64_t tiles, Tile tile) {
    add_counted([tiles] { return tiles; }, std::move(tile));
  }

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
  // Runs the program, the calling thread included.
  void run();

 private:
  struct Phase {
    int32_t op;
    void* of;
    int64_t (*count)(void*);
    void (*run)(void*, int64_t begin, int64_t end, int thread);
  };

  void* allocate(size_t bytes);
  void end_lap(int32_t op);
  void start_phase(size_t index);
  void publish(uint64_t ticket);
  void work(int thread);
  bool spin_while(uint64_t ticket);
  void sleep_while(uint64_t ticket);
  void serve(int thread);

  const int threads_;
  std::vector<Phase> program_;
  std::vector<std::unique_ptr<char[]>> arena_;
  size_t arena_used_ = 0;
  int32_t op_ = 0;
  int64_t* watched_ns_ = nullptr;
  int64_t lap_began_ns_ = 0;  // while somebody watches; written by whoever ends a phase
  size_t phase_ = 0;  // written by whoever starts a phase, read by those who hold tiles of it
  std::vector<std::thread> workers_;

  // Phase number | next tile | tiles. Taking tiles is one exchange of it, so nobody can hold tiles of a finished phase.
  alignas(64) std::atomic<uint64_t> ticket_{0};
  alignas(64) std::atomic<int64_t> done_{0};
  alignas(64) std::atomic<uint32_t> epoch_{0};  // goes up with each phase: what sleepers wait on
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<bool> is_closing_{false};
};

}  // namespace hr
