// Memory that grows to the largest step and is kept: aligned, and in huge pages where the system has them.
#pragma once
#include <sys/mman.h>

#include <cstddef>
#include <new>

namespace hr {

class Buffer {
 public:
  Buffer() = default;
  ~Buffer() { release(); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  // At least `count` elements; what was there before is lost when it has to grow.
  template <class Element>
  Element* at_least(size_t count) {
    if (const size_t bytes = count * sizeof(Element); bytes > bytes_) grow(bytes);
    return static_cast<Element*>(memory_);
  }

 private:
  void grow(size_t bytes) {
    constexpr size_t GRANULE = size_t{1} << 16, HUGE_PAGE = size_t{2} << 20;
    const size_t rounded = (bytes + bytes / 4 + GRANULE - 1) / GRANULE * GRANULE;
    release();
    void* memory = mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    if (rounded >= HUGE_PAGE) madvise(memory, rounded, MADV_HUGEPAGE);  // refused: ordinary pages serve
    memory_ = memory;
    bytes_ = rounded;
  }
  void release() {
    if (memory_) munmap(memory_, bytes_);
    memory_ = nullptr;
    bytes_ = 0;
  }

  void* memory_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace hr
