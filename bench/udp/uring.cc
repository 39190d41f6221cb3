#include "bench/udp/uring.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <string>

namespace clustar::bench::udp {
namespace {

unsigned load(unsigned* shared) { return std::atomic_ref(*shared).load(std::memory_order_acquire); }
void store(unsigned* shared, unsigned value) { std::atomic_ref(*shared).store(value, std::memory_order_release); }

tl::unexpected<Error> refused(const char* call) {
  return fail(ErrorCode::kUnavailable, std::string("io_uring: ") + call + ": " + describe_errno(errno) +
                                           "; it needs Linux 6.1 and /proc/sys/kernel/io_uring_disabled at 0");
}

}  // namespace

Uring::Mapping::~Mapping() {
  if (address != nullptr) ::munmap(address, bytes);
}

bool Uring::Mapping::map(int fd, std::size_t length, std::uint64_t offset) {
  const int flags = fd < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED | MAP_POPULATE;
  void* made = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, flags, fd, static_cast<off_t>(offset));
  if (made == MAP_FAILED) return false;
  address = made;
  bytes = length;
  return true;
}

Result<std::unique_ptr<Uring>> Uring::open(unsigned entries) {
  std::unique_ptr<Uring> ring(new Uring);
  io_uring_params& parameters = ring->parameters_;
  parameters.flags =
      IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_SUBMIT_ALL | IORING_SETUP_CQSIZE;
  parameters.cq_entries = 8 * entries;
  ring->file_ = FileDescriptor(static_cast<int>(::syscall(SYS_io_uring_setup, entries, &parameters)));
  if (!ring->file_) return refused("setup");
  const int fd = ring->file_.fd();
  const std::size_t submissions = parameters.sq_off.array + parameters.sq_entries * sizeof(unsigned);
  const std::size_t completions = parameters.cq_off.cqes + parameters.cq_entries * sizeof(io_uring_cqe);
  if ((parameters.features & IORING_FEAT_SINGLE_MMAP) == 0 ||
      !ring->rings_.map(fd, std::max(submissions, completions), IORING_OFF_SQ_RING) ||
      !ring->entries_.map(fd, parameters.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) {
    return refused("mmap");
  }
  auto* array = ring->rings_.at<unsigned>(parameters.sq_off.array);
  for (unsigned i = 0; i < parameters.sq_entries; ++i) array[i] = i;
  return ring;
}

Uring::~Uring() = default;

io_uring_sqe* Uring::next_entry() {
  const io_sqring_offsets& at = parameters_.sq_off;
  const unsigned tail = *rings_.at<unsigned>(at.tail);
  if (tail - load(rings_.at<unsigned>(at.head)) == parameters_.sq_entries) return nullptr;
  io_uring_sqe* entry = entries_.at<io_uring_sqe>(0) + (tail & *rings_.at<unsigned>(at.ring_mask));
  std::memset(entry, 0, sizeof *entry);
  // The kernel reads entries in enter() only, so this one may be filled in after the tail has moved.
  store(rings_.at<unsigned>(at.tail), tail + 1);
  ++waiting_;
  return entry;
}

int Uring::enter(unsigned least, std::uint64_t timeout_ns) {
  __kernel_timespec limit{static_cast<long long>(timeout_ns / 1'000'000'000),
                          static_cast<long long>(timeout_ns % 1'000'000'000)};
  io_uring_getevents_arg argument{};
  argument.ts = reinterpret_cast<std::uint64_t>(&limit);
  ++calls_;
  const long done = ::syscall(SYS_io_uring_enter, file_.fd(), waiting_, least,
                              IORING_ENTER_GETEVENTS | IORING_ENTER_EXT_ARG, &argument, sizeof argument);
  if (done >= 0) waiting_ -= static_cast<unsigned>(done);
  return done < 0 && errno == ETIME ? 0 : static_cast<int>(done);
}

const io_uring_cqe* Uring::front() const {
  const io_cqring_offsets& at = parameters_.cq_off;
  const unsigned head = *rings_.at<unsigned>(at.head);
  if (head == load(rings_.at<unsigned>(at.tail))) return nullptr;
  return rings_.at<io_uring_cqe>(at.cqes) + (head & *rings_.at<unsigned>(at.ring_mask));
}

void Uring::pop() {
  auto* head = rings_.at<unsigned>(parameters_.cq_off.head);
  store(head, *head + 1);
}

Result<void> Uring::provide(std::span<std::byte> memory, unsigned buffers, std::size_t bytes, std::uint16_t group) {
  if (!buffer_ring_.map(-1, buffers * sizeof(io_uring_buf), 0)) return refused("buffer ring");
  io_uring_buf_reg request{};
  request.ring_addr = reinterpret_cast<std::uint64_t>(buffer_ring_.address);
  request.ring_entries = buffers;
  request.bgid = group;
  if (::syscall(SYS_io_uring_register, file_.fd(), IORING_REGISTER_PBUF_RING, &request, 1) != 0) {
    return refused("register buffer ring");
  }
  buffers_ = memory.data();
  buffer_bytes_ = bytes;
  buffer_count_ = buffers;
  for (unsigned i = 0; i < buffers; ++i) give_back(static_cast<std::uint16_t>(i));
  return {};
}

void Uring::give_back(std::uint16_t buffer) {
  // Not io_uring_buf_ring::bufs: in C++ the macro behind it puts it at a wrong offset.
  auto* entry = buffer_ring_.at<io_uring_buf>(0) + (buffer_tail_ & (buffer_count_ - 1));
  entry->addr = reinterpret_cast<std::uint64_t>(buffers_ + buffer * buffer_bytes_);
  entry->len = static_cast<std::uint32_t>(buffer_bytes_);
  entry->bid = buffer;
  auto* tail = &buffer_ring_.at<io_uring_buf_ring>(0)->tail;
  std::atomic_ref(*tail).store(++buffer_tail_, std::memory_order_release);
}

}  // namespace clustar::bench::udp
