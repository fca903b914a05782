#include "native/team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>
#include <stdexcept>

#include "native/vec.h"

namespace hr {
namespace {

constexpr int TILE_BITS = 22;
constexpr uint64_t TILE_MASK = (uint64_t{1} << TILE_BITS) - 1;
constexpr int64_t SHARES = 4;  // a claim is at most this part of what a thread's even share would be
constexpr std::chrono::microseconds SPIN{50};
constexpr int PAUSES_PER_LOOK = 32;
constexpr size_t ARENA_BYTES = 1 << 16;

int64_t tiles_of(uint64_t ticket) { return static_cast<int64_t>(ticket & TILE_MASK); }
int64_t next_of(uint64_t ticket) { return static_cast<int64_t>(ticket >> TILE_BITS & TILE_MASK); }
uint64_t phase_of(uint64_t ticket) { return ticket >> 2 * TILE_BITS; }
uint64_t ticket_after(uint64_t ticket, int64_t tiles) {
  return (phase_of(ticket) + 1) << 2 * TILE_BITS | static_cast<uint64_t>(tiles);
}

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t seen) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace

Team::Team(int threads) : threads_(threads) {
  try {
    for (int thread = 1; thread < threads; ++thread) workers_.emplace_back([this, thread] { serve(thread); });
  } catch (...) {
    is_closing_ = true;
    publish(ticket_.load());
    for (std::thread& worker : workers_) worker.join();
    throw;
  }
}

Team::~Team() {
  is_closing_ = true;
  publish(ticket_.load());
  for (std::thread& worker : workers_) worker.join();
}

void* Team::allocate(size_t bytes) {
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > ARENA_BYTES) throw std::bad_alloc();
  if (arena_used_ % ARENA_BYTES + bytes > ARENA_BYTES) arena_used_ = (arena_used_ / ARENA_BYTES + 1) * ARENA_BYTES;
  const size_t chunk = arena_used_ / ARENA_BYTES;
  if (chunk == arena_.size()) arena_.push_back(std::make_unique<char[]>(ARENA_BYTES));
  char* at = arena_[chunk].get() + arena_used_ % ARENA_BYTES;
  arena_used_ += bytes;
  return at;
}

void Team::begin() {
  program_.clear();
  arena_used_ = 0;
  op_ = 0;
  if (watched_ns_) lap_began_ns_ = now_ns();
}

void Team::rouse() {
  if (threads_ > 1) publish(ticket_after(ticket_.load(), 0));
}

void Team::run() {
  const FloatMode mode;
  if (threads_ == 1) {
    for (const Phase& phase : program_) {
      phase.run(phase.of, 0, phase.count(phase.of), 0);
      lap(phase.op);
    }
  } else {
    start_phase(0);
    work(0);
  }
}

// Begins the first phase from `index` on that has tiles; past the last, an empty ticket ends the program.
void Team::start_phase(size_t index) {
  int64_t tiles = 0;
  while (index < program_.size() && (tiles = program_[index].count(program_[index].of)) == 0) ++index;
  if (tiles > static_cast<int64_t>(TILE_MASK)) __builtin_trap();
  phase_ = index;
  done_.store(0, std::memory_order_relaxed);
  publish(ticket_after(ticket_.load(std::memory_order_relaxed), tiles));
}

void Team::publish(uint64_t ticket) {
  ticket_.store(ticket);
  epoch_.fetch_add(1);
  if (sleepers_.load() != 0) futex_wake_all(epoch_);
}

// Inside a program by whoever finished a phase's last tile, before anybody can take one of the next.
void Team::end_lap(int32_t op) {
  const int64_t ended_ns = now_ns();
  watched_ns_[op] += ended_ns - lap_began_ns_;
  lap_began_ns_ = ended_ns;
}

// Takes tiles until the program is over.
void Team::work(int thread) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  while (tiles_of(ticket) != 0) {
    const int64_t next = next_of(ticket), tiles = tiles_of(ticket);
    if (next == tiles) {
      if (!spin_while(ticket)) sleep_while(ticket);
      ticket = ticket_.load(std::memory_order_acquire);
      continue;
    }
    const int64_t count = std::max<int64_t>(1, (tiles - next) / (SHARES * threads_));
    const uint64_t taken = ticket + (static_cast<uint64_t>(count) << TILE_BITS);
    if (!ticket_.compare_exchange_weak(ticket, taken, std::memory_order_acq_rel)) continue;
    const Phase& phase = program_[phase_];
    phase.run(phase.of, next, next + count, thread);
    if (done_.fetch_add(count, std::memory_order_acq_rel) + count == tiles) {
      lap(phase.op);
      start_phase(phase_ + 1);
    }
    ticket = ticket_.load(std::memory_order_acquire);
  }
}

// Whether the ticket became one of another phase within 50 µs.
bool Team::spin_while(uint64_t ticket) {
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; ++i) {
      if (phase_of(ticket_.load(std::memory_order_acquire)) != phase_of(ticket)) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() - begin < SPIN);
  return false;
}

// Returns once the ticket is of another phase, or for no reason.
void Team::sleep_while(uint64_t ticket) {
  const uint32_t epoch = epoch_.load();
  sleepers_.fetch_add(1);
  if (phase_of(ticket_.load()) == phase_of(ticket) && !is_closing_.load()) futex_wait(epoch_, epoch);
  sleepers_.fetch_sub(1);
}

void Team::serve(int thread) {
  const FloatMode mode;
  while (!is_closing_.load()) {
    work(thread);
    sleep_while(ticket_.load());
    const uint64_t ticket = ticket_.load();
    if (tiles_of(ticket) == 0) spin_while(ticket);  // roused: the program comes soon
  }
}

}  // namespace hr
