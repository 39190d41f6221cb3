// io_uring by its system calls (io_uring_setup(2), io_uring_enter(2)): liburing is not needed for so little.
#pragma once

#include <linux/io_uring.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "transport/base/file_descriptor.h"
#include "transport/base/result.h"

namespace clustar::bench::udp {

// Belongs to the thread that opened it.
class Uring {
 public:
  // kUnavailable with errno where the kernel does not allow it. `entries` is a power of two.
  static Result<std::unique_ptr<Uring>> open(unsigned entries);
  ~Uring();
  Uring(const Uring&) = delete;
  Uring& operator=(const Uring&) = delete;

  // A cleared entry, submitted with the next enter(). Null when all are in use.
  io_uring_sqe* next_entry();
  // Submits and waits for `least` completions, `timeout_ns` at most. -1 with errno; ETIME is no error.
  int enter(unsigned least, std::uint64_t timeout_ns);
  // The oldest completion, null if there is none; valid until pop().
  const io_uring_cqe* front() const;
  void pop();
  // A ring of `buffers` (a power of two) of `bytes` each, beginning at `memory`, for IOSQE_BUFFER_SELECT.
  Result<void> provide(std::span<std::byte> memory, unsigned buffers, std::size_t bytes, std::uint16_t group);
  void give_back(std::uint16_t buffer);
  std::uint64_t calls() const { return calls_; }

 private:
  struct Mapping {
    Mapping() = default;
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    bool map(int fd, std::size_t bytes, std::uint64_t offset);
    template <class T>
    T* at(std::size_t offset) const {
      return reinterpret_cast<T*>(static_cast<std::byte*>(address) + offset);
    }
    void* address = nullptr;
    std::size_t bytes = 0;
  };
  Uring() = default;

  FileDescriptor file_;
  io_uring_params parameters_{};
  Mapping rings_;  // IORING_FEAT_SINGLE_MMAP: both are one
  Mapping entries_;
  Mapping buffer_ring_;
  std::byte* buffers_ = nullptr;
  std::size_t buffer_bytes_ = 0;
  unsigned buffer_count_ = 0;
  std::uint16_t buffer_tail_ = 0;
  unsigned waiting_ = 0;  // entries made and not submitted
  std::uint64_t calls_ = 0;
};

}  // namespace clustar::bench::udp
