#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bench/udp/receivers.h"
#include "bench/udp/uring.h"

namespace clustar::bench::udp {
namespace {

constexpr std::uint64_t kWaitNs = 20'000'000;
constexpr unsigned kBuffers = 64;
constexpr std::size_t kControlBytes = 64;
// What the kernel writes in front of the payload: io_uring_recvmsg_out, no name, control data.
constexpr std::size_t kFront = sizeof(io_uring_recvmsg_out) + kControlBytes;
constexpr std::size_t kBufferBytes = kFront + 65536;

tl::unexpected<Error> failed(const char* call, int error) {
  return fail(ErrorCode::kSystem, std::string("io_uring: ") + call + ": " + describe_errno(error));
}

// One request that goes on receiving, each message into the next of a ring of buffers.
class Multishot final : public Receiver {
 public:
  Multishot(int fd, std::unique_ptr<Uring> ring) : fd_(fd), ring_(std::move(ring)) {
    header_.msg_controllen = kControlBytes;
  }
  Result<void> provide() { return ring_->provide(memory_, kBuffers, kBufferBytes, 0); }
  std::uint64_t calls() const override { return ring_->calls(); }

  Result<void> poll(Assembly& into) override {
    if (!armed_) arm();
    if (ring_->front() == nullptr && ring_->enter(1, kWaitNs) < 0 && errno != EINTR) return failed("enter", errno);
    while (const io_uring_cqe* done = ring_->front()) {
      armed_ = (done->flags & IORING_CQE_F_MORE) != 0;
      const int result = done->res;
      const auto buffer = static_cast<std::uint16_t>(done->flags >> IORING_CQE_BUFFER_SHIFT);
      const bool has_buffer = (done->flags & IORING_CQE_F_BUFFER) != 0;
      ring_->pop();
      if (has_buffer) {
        take(into, std::span(memory_).subspan(buffer * kBufferBytes, static_cast<std::size_t>(std::max(result, 0))));
        ring_->give_back(buffer);
        into.message_done();
      } else if (result < 0 && result != -ENOBUFS && result != -EAGAIN) {
        return failed("recvmsg", -result);
      }
    }
    return {};
  }

 private:
  void arm() {
    io_uring_sqe* entry = ring_->next_entry();
    entry->opcode = IORING_OP_RECVMSG;
    entry->fd = fd_;
    entry->addr = reinterpret_cast<std::uint64_t>(&header_);
    entry->len = 1;
    entry->ioprio = IORING_RECV_MULTISHOT;
    entry->flags = IOSQE_BUFFER_SELECT;
    armed_ = true;
  }
  void take(Assembly& into, std::span<std::byte> bytes) {
    if (bytes.size() < kFront) return into.count_malformed();
    io_uring_recvmsg_out out;
    std::memcpy(&out, bytes.data(), sizeof out);
    msghdr header{};
    header.msg_control = bytes.data() + sizeof out;
    header.msg_controllen = out.controllen;
    const std::size_t length = std::min<std::size_t>(out.payloadlen, bytes.size() - kFront);
    into.take(bytes.subspan(kFront, length), segment_bytes_of(header, length), Copy::kUsual);
  }

  int fd_;
  std::unique_ptr<Uring> ring_;
  msghdr header_{};
  bool armed_ = false;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kBuffers * kBufferBytes);
};

// One request per message, into predicted places; the next one is submitted by the call that waits for it.
class OneShotScatter final : public Receiver {
 public:
  OneShotScatter(int fd, const Shape& shape, std::unique_ptr<Uring> ring)
      : fd_(fd), plan_(shape), ring_(std::move(ring)) {}
  std::uint64_t calls() const override { return ring_->calls(); }
  ScatterCounts scatter() const override { return counts_; }

  Result<void> poll(Assembly& into) override {
    if (!submitted_) submit(into);
    if (ring_->enter(1, kWaitNs) < 0 && errno != EINTR) return failed("enter", errno);
    const io_uring_cqe* done = ring_->front();
    if (done == nullptr) return {};
    const int result = done->res;
    ring_->pop();
    submitted_ = false;
    if (result == -EAGAIN || result == -EINTR) return {};
    if (result < 0) return failed("recvmsg", -result);
    const auto length = static_cast<std::size_t>(result);
    plan_.land(length, segment_bytes_of(header_, length), counts_);
    plan_.settle(into);
    into.message_done();
    return {};
  }

 private:
  void submit(Assembly& into) {
    plan_.predict(into, into.next(), into.shape().burst());
    header_ = {};
    plan_.fill(header_);
    header_.msg_control = control_.data();
    header_.msg_controllen = control_.size();
    io_uring_sqe* entry = ring_->next_entry();
    entry->opcode = IORING_OP_RECVMSG;
    entry->fd = fd_;
    entry->addr = reinterpret_cast<std::uint64_t>(&header_);
    entry->len = 1;
    submitted_ = true;
  }

  int fd_;
  ScatterPlan plan_;
  std::unique_ptr<Uring> ring_;
  ScatterCounts counts_;
  msghdr header_{};
  bool submitted_ = false;
  alignas(cmsghdr) std::array<std::byte, kControlBytes> control_;
};

}  // namespace

Result<std::unique_ptr<Receiver>> make_multishot(int fd, const Shape&) {
  auto ring = Uring::open(64);
  if (!ring) return tl::unexpected(ring.error());
  auto made = std::make_unique<Multishot>(fd, std::move(*ring));
  if (auto provided = made->provide(); !provided) return tl::unexpected(provided.error());
  return made;
}

Result<std::unique_ptr<Receiver>> make_one_shot_scatter(int fd, const Shape& shape) {
  auto ring = Uring::open(8);
  if (!ring) return tl::unexpected(ring.error());
  return std::make_unique<OneShotScatter>(fd, shape, std::move(*ring));
}

}  // namespace clustar::bench::udp
