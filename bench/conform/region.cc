// The registered buffers of session.h and the bytes in them.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "bench/conform/session.h"

namespace clustar::bench::conform {
namespace {

constexpr std::byte kGuardByte{0xa5};
constexpr std::byte kFiller{0xee};

// Word `index` of the sequence of `seed`: splitmix64, so that neither shifted nor swapped data looks right.
std::uint64_t pattern_word(std::uint64_t seed, std::size_t index) {
  std::uint64_t z = seed * 0x9e3779b97f4a7c15ull + (index + 1) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

std::size_t count_other(const std::byte* data, std::size_t size, std::byte value) {
  return size - static_cast<std::size_t>(std::count(data, data + size, value));
}

}  // namespace

void Region::Freer::operator()(std::byte* memory) const {
  if (mapped == 0)
    std::free(memory);
  else
    munmap(memory, mapped);
}

// Returns the descriptor of what plays a GPU's memory, which the dma-buf's bytes begin with; -1 for host memory.
int Region::allocate(const Place& place) {
  const std::size_t before = kGuard + place.dma_offset + place.shift;
  const std::size_t bytes = (before + size_ + kGuard + kGuard - 1) / kGuard * kGuard;
  int fd = -1;
  if (place.memory == Memory::kHost) {
    memory_.reset(static_cast<std::byte*>(std::aligned_alloc(kGuard, bytes)));
  } else {
    fd = memfd_create("conform", MFD_CLOEXEC);
    void* const whole = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fd < 0 || whole == MAP_FAILED || ftruncate(fd, static_cast<off_t>(bytes - kGuard)) != 0) {
      fail_check(fmt::format("no memory for {} bytes that play a GPU's", bytes));
    }
    memory_ = decltype(memory_)(static_cast<std::byte*>(whole), Freer(bytes));
    if (mmap(memory_.get() + kGuard, bytes - kGuard, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) ==
        MAP_FAILED) {
      fail_check(fmt::format("{} bytes that play a GPU's cannot be mapped", bytes));
    }
  }
  if (!memory_) fail_check(fmt::format("no memory for a buffer of {} bytes", size_));
  data_ = memory_.get() + before;
  std::memset(data_ - kGuard, static_cast<int>(kGuardByte), kGuard);
  std::memset(data_ + size_, static_cast<int>(kGuardByte), kGuard);
  return fd;
}

void Region::add(const Place& place, int fd) {
  // NCCL registers whole protocol buffers, never nothing.
  const std::size_t bytes = std::max<std::size_t>(size_, 1);
  proxy::NetPlugin& net = session_->net();
  if (place.memory != Memory::kDmaBuf) {
    note_call("regMr");
    const int type = place.memory == Memory::kHost ? nccl_abi::kPtrHost : nccl_abi::kPtrCuda;
    session_->must(net.reg_mr(comm_, data_, bytes, type, &mhandle_),
                   place.memory == Memory::kHost ? "regMr" : "regMr of NCCL_PTR_CUDA");
    return;
  }
  note_call("regMrDmaBuf");
  session_->must(
      net.reg_mr_dma_buf(comm_, data_, bytes, nccl_abi::kPtrCuda, place.dma_offset + place.shift, fd, &mhandle_),
      "regMrDmaBuf");
}

Region::Region(Session& session, void* comm, std::size_t size, Place place)
    : session_(&session), comm_(comm), size_(size) {
  const int fd = allocate(place);
  add(place, fd);
  if (fd >= 0) close(fd);
}

Region::Region(Session& session, void* comm, Region& of, std::size_t offset, std::size_t size)
    : session_(&session), comm_(comm), size_(size), data_(of.data() + offset) {
  add({}, -1);
}

Region::Region(Region&& other) noexcept
    : session_(other.session_),
      comm_(std::exchange(other.comm_, nullptr)),
      size_(other.size_),
      memory_(std::move(other.memory_)),
      data_(other.data_),
      mhandle_(other.mhandle_) {}

Region::~Region() { deregister(); }

void Region::deregister() {
  if (comm_ == nullptr) return;
  if (memory_) expect_guards("deregMr");
  note_call("deregMr");
  session_->must(session_->net().dereg_mr(std::exchange(comm_, nullptr), mhandle_), "deregMr");
}

void Region::fill(std::uint64_t seed, std::size_t offset, std::size_t size) {
  std::byte* out = data() + offset;
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = pattern_word(seed, at / 8);
    std::memcpy(out + at, &word, std::min<std::size_t>(8, size - at));
  }
}

void Region::clear() { std::memset(data(), static_cast<int>(kFiller), size_); }

void Region::expect(std::uint64_t seed, std::size_t offset, std::size_t size, const std::string& what) {
  const std::byte* in = data() + offset;
  for (std::size_t at = 0; at < size; at += 8) {
    const std::uint64_t word = pattern_word(seed, at / 8);
    const std::size_t n = std::min<std::size_t>(8, size - at);
    if (std::memcmp(in + at, &word, n) == 0) continue;
    std::size_t byte = 0;
    while (in[at + byte] == reinterpret_cast<const std::byte*>(&word)[byte]) ++byte;
    const bool untouched = in[at + byte] == kFiller;
    fail_check(fmt::format("{}: byte {} of {} is {:#04x} instead of {:#04x}{}", what, at + byte, size,
                           static_cast<int>(in[at + byte]),
                           static_cast<int>(reinterpret_cast<const std::byte*>(&word)[byte]),
                           untouched ? " (nothing was written there)" : ""));
  }
}

void Region::expect_untouched(std::size_t offset, std::size_t size, const std::string& what) {
  const std::size_t touched = count_other(data() + offset, size, kFiller);
  if (touched > 0) fail_check(fmt::format("{}: {} bytes were written where nothing belongs", what, touched));
}

void Region::expect_guards(const std::string& what) {
  const std::size_t before = count_other(data_ - kGuard, kGuard, kGuardByte);
  const std::size_t behind = count_other(data_ + size_, kGuard, kGuardByte);
  if (before + behind > 0) {
    fail_check(fmt::format("{}: {} bytes before and {} bytes behind the buffer of {} bytes were overwritten", what,
                           before, behind, size_));
  }
}

}  // namespace clustar::bench::conform
