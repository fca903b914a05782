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
constexpr uint64_t PHASE_MASK = (uint64_t{1} << (64 - 2 * TILE_BITS)) - 1;
constexpr int64_t SHARES = 4;  // what is left of a part is taken in so many pieces at least
constexpr int64_t SPIN_US = 50;
constexpr int64_t LEAST_PATIENCE_US = 20;  // before tiles are late; and twice what the last ones of a phase took
constexpr int PAUSES_PER_LOOK = 32;
constexpr int LOOKS_FOR_LEAVING = 1000;
constexpr size_t ARENA_BYTES = 1 << 16;

// A ticket: phase number | next tile | end of the tiles.
uint64_t ticket_of(uint64_t phase, int64_t next, int64_t end) {
  return phase << 2 * TILE_BITS | static_cast<uint64_t>(next) << TILE_BITS | static_cast<uint64_t>(end);
}
uint64_t phase_of(uint64_t ticket) { return ticket >> 2 * TILE_BITS; }
int64_t next_of(uint64_t ticket) { return static_cast<int64_t>(ticket >> TILE_BITS & TILE_MASK); }
int64_t end_of(uint64_t ticket) { return static_cast<int64_t>(ticket & TILE_MASK); }
uint64_t empty_after(uint64_t ticket) { return ticket_of(phase_of(ticket) + 1, 0, 0); }

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

Team::Team(int threads)
    : threads_(threads),
      places_(std::make_unique<Place[]>(static_cast<size_t>(threads))),
      parts_(std::make_unique<Part[]>(static_cast<size_t>(threads))) {
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

Team::Flag* Team::new_flags(int64_t count) {
  if (threads_ == 1 || count > static_cast<int64_t>(ARENA_BYTES)) return nullptr;
  Flag* flags = static_cast<Flag*>(allocate(static_cast<size_t>(count)));
  for (int64_t i = 0; i < count; ++i) new (flags + i) Flag{0};
  return flags;
}

void Team::begin() {
  program_.clear();
  arena_used_ = 0;
  op_ = 0;
  left_ = 0;
  if (watched_ns_) lap_began_ns_ = now_ns();
}

void Team::rouse() {
  if (threads_ > 1) publish(empty_after(ticket_.load()));
}

void Team::run() {
  const FloatMode mode;
  if (threads_ == 1) {
    for (const Phase& phase : program_) {
      const int64_t tiles = phase.count(phase.of);
      for (int64_t i = 0; i < tiles; ++i) phase.run(phase.of, i, 0);
      lap(phase.op);
    }
    return;
  }
  first_.store(phase_of(empty_after(ticket_.load())));
  start_phase(0);
  work(0);
  await_left(NOWHERE);
}

// Begins the first phase from `index` on that has tiles; past the last, an empty ticket ends the program.
void Team::start_phase(size_t index) {
  int64_t tiles = 0;
  while (index < program_.size() && (tiles = program_[index].count(program_[index].of)) == 0) ++index;
  if (tiles > static_cast<int64_t>(TILE_MASK)) __builtin_trap();
  if (tiles != 0) await_left(program_[index].left);
  done_.store(0, std::memory_order_relaxed);
  const uint64_t phase = first_.load() + index;
  for (int i = 0; i < threads_ && tiles != 0; ++i) {
    parts_[i].ticket.store(ticket_of(phase, part_begin(i, tiles), part_begin(i + 1, tiles)));
  }
  publish(ticket_of(phase, 0, tiles));
}

void Team::publish(uint64_t ticket) {
  ticket_.store(ticket);
  epoch_.fetch_add(1);
  if (sleepers_.load() != 0) futex_wake_all(epoch_);
}

// Where in the program a ticket's phase is; of a program that is over, anything.
size_t Team::index_of(uint64_t ticket) const { return (phase_of(ticket) - first_.load()) & PHASE_MASK; }

// To be said before tiles of a phase are taken: who sees its end sees this, too.
void Team::enter(int thread, size_t index) { places_[thread].phase.store(static_cast<int32_t>(index)); }

void Team::leave_all(int thread) {
  places_[thread].phase.store(NOWHERE);
  if (awaiting_.load() == 0) return;
  leavings_.fetch_add(1);
  futex_wake_all(leavings_);
}

bool Team::is_left(int32_t phases) const {
  return std::all_of(&places_[0], &places_[threads_], [=](const Place& place) { return place.phase.load() >= phases; });
}

// Returns once no thread is in one of the first `phases`.
void Team::await_left(int32_t phases) {
  for (int i = 0; !is_left(phases); ++i) {
    if (i < LOOKS_FOR_LEAVING) {
      pause();
      continue;
    }
    awaiting_.store(1);
    const uint32_t seen = leavings_.load();
    if (!is_left(phases)) futex_wait(leavings_, seen);
    awaiting_.store(0);
  }
}

// Inside a program by whoever finished a phase's last tile, before anybody can take one of the next.
void Team::end_lap(int32_t op) {
  const int64_t ended_ns = now_ns();
  watched_ns_[op] += ended_ns - lap_began_ns_;
  lap_began_ns_ = ended_ns;
}

// Takes tiles until the program is over.
void Team::work(int thread) {
  uint64_t ticket = ticket_.load();
  while (end_of(ticket) != 0) {
    if (!work_share(ticket, thread) && !spin_while(ticket, places_[thread].patience_us) && !compute_late(ticket, thread) &&
        !spin_while(ticket, SPIN_US)) {
      sleep_while(ticket);
    }
    ticket = ticket_.load();
  }
}

// Whether tiles of the ticket's phase were left to take; they are computed now.
bool Team::work_share(uint64_t ticket, int thread) {
  const size_t index = index_of(ticket);
  enter(thread, index);
  const Share share = take(ticket, thread);
  const int64_t begin_ns = share.is_near_end ? now_ns() : 0;
  const bool is_last = share.count != 0 && compute(program_[index], share, end_of(ticket), thread);
  leave_all(thread);
  if (share.is_near_end) {
    places_[thread].patience_us = std::max(LEAST_PATIENCE_US, 2 * (now_ns() - begin_ns) / 1000);
  }
  if (is_last) end_phase(index);
  return share.count != 0;
}

// The next tiles of the thread's own part, or of another where that is empty.
Team::Share Team::take(uint64_t ticket, int thread) {
  for (int i = 0; i < threads_; ++i) {
    std::atomic<uint64_t>& part = parts_[(thread + i) % threads_].ticket;
    uint64_t seen = part.load();
    while (phase_of(seen) == phase_of(ticket) && next_of(seen) != end_of(seen)) {
      const Share share = next_share(next_of(seen), end_of(seen));
      if (part.compare_exchange_weak(seen, seen + (static_cast<uint64_t>(share.count) << TILE_BITS))) return share;
    }
  }
  return {0, 0, false};
}

// What is taken together of a part that is left from `next` to `end`.
Team::Share Team::next_share(int64_t next, int64_t end) {
  return {next, std::max<int64_t>(1, (end - next) / SHARES), end - next <= 2};
}

int64_t Team::part_begin(int part, int64_t tiles) const { return tiles * part / threads_; }

// Computes a share; whether the phase is done with that.
bool Team::compute(const Phase& phase, const Share& share, int64_t tiles, int thread) {
  if (late_every_ != 0) be_late_with(thread);
  for (int64_t i = share.begin; i < share.begin + share.count; ++i) phase.run(phase.of, i, thread);
  if (phase.is_done && phase.is_done[share.begin].exchange(1)) return false;
  return done_.fetch_add(share.count) + share.count == tiles;
}

// Computes what others have taken and are late with, where the phase allows it. Whether the ticket is another now.
bool Team::compute_late(uint64_t ticket, int thread) {
  const size_t index = index_of(ticket);
  enter(thread, index);
  bool is_last = false;
  const bool is_current = phase_of(ticket_.load()) == phase_of(ticket);
  if (is_current && program_[index].is_done) {
    const int64_t tiles = end_of(ticket);
    for (int part = 0; part < threads_; ++part) {
      const int64_t end = part_begin(part + 1, tiles);
      for (int64_t next = part_begin(part, tiles); next < end;) {
        const Share share = next_share(next, end);
        if (!program_[index].is_done[next].load()) is_last = compute(program_[index], share, tiles, thread);
        next += share.count;
      }
    }
  }
  leave_all(thread);
  if (is_last) end_phase(index);
  return is_last || !is_current;
}

void Team::end_phase(size_t index) {
  lap(program_[index].op);
  start_phase(index + 1);
}

void Team::be_late_with(int thread) {
  if (++places_[thread].shares % late_every_ == 0) std::this_thread::sleep_for(std::chrono::microseconds(late_us_));
}

// Whether the ticket became one of another phase within so long.
bool Team::spin_while(uint64_t ticket, int64_t microseconds) {
  const auto begin = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < PAUSES_PER_LOOK; ++i) {
      if (phase_of(ticket_.load(std::memory_order_acquire)) != phase_of(ticket)) return true;
      pause();
    }
  } while (std::chrono::steady_clock::now() - begin < std::chrono::microseconds(microseconds));
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
    if (end_of(ticket) == 0) spin_while(ticket, SPIN_US);  // roused: the program comes soon
  }
}

}  // namespace hr
