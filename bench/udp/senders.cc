#include "bench/udp/senders.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "bench/udp/uring.h"

namespace clustar::bench::udp {
namespace {

constexpr std::uint64_t kWaitNs = 1'000'000'000;
// A packet has at most 17 pieces of foreign memory (MAX_SKB_FRAGS); every segment is a header and a payload that may
// touch this many pages.
constexpr std::size_t kMostPieces = 17;

tl::unexpected<Error> failed(const char* call, int error) {
  return fail(ErrorCode::kSystem, std::string("send: ") + call + ": " + describe_errno(error));
}

// The messages of one call: header and payload of each segment by turns.
class Messages {
 public:
  // Headers are used again after `rounds` calls of build().
  Messages(const Shape& shape, std::span<std::byte> source, std::size_t rounds)
      : shape_(shape),
        source_(source),
        rounds_(rounds),
        headers_(rounds * Sender::kMostBursts * kMostSegments * kHeaderBytes),
        pieces_(2 * Sender::kMostBursts * kMostSegments),
        messages_(Sender::kMostBursts) {}

  std::span<mmsghdr> build(std::span<const Burst> bursts) {
    std::byte* header = headers_.data() + round_++ % rounds_ * (headers_.size() / rounds_);
    iovec* piece = pieces_.data();
    for (std::size_t i = 0; i < bursts.size(); ++i) {
      messages_[i].msg_hdr = {};
      messages_[i].msg_hdr.msg_iov = piece;
      messages_[i].msg_hdr.msg_iovlen = 2 * bursts[i].segments;
      for (std::size_t k = 0; k < bursts[i].segments; ++k, header += kHeaderBytes) {
        const std::uint64_t segment = bursts[i].first + k;
        std::memcpy(header, &segment, sizeof segment);
        *piece++ = {header, kHeaderBytes};
        *piece++ = {source_.data() + shape_.source_offset(segment), shape_.payload_bytes};
      }
    }
    return std::span(messages_).first(bursts.size());
  }

 private:
  Shape shape_;
  std::span<std::byte> source_;
  std::size_t rounds_;
  std::size_t round_ = 0;
  std::vector<std::byte> headers_;
  std::vector<iovec> pieces_;
  std::vector<mmsghdr> messages_;
};

class Plain final : public Sender {
 public:
  Plain(int fd, const Shape& shape, std::span<std::byte> source)
      : fd_(fd), burst_(shape.burst()), messages_(shape, source, 1) {}
  std::uint64_t calls() const override { return calls_; }
  std::size_t burst() const override { return burst_; }
  Result<void> send(std::span<const Burst> bursts) override {
    for (auto rest = messages_.build(bursts); !rest.empty();) {
      const int sent = ::sendmmsg(fd_, rest.data(), static_cast<unsigned>(rest.size()), 0);
      ++calls_;
      if (sent < 0 && errno != ENOBUFS && errno != EINTR) return failed("sendmmsg", errno);
      if (sent > 0) rest = rest.subspan(static_cast<std::size_t>(sent));
    }
    return {};
  }

 private:
  int fd_;
  std::size_t burst_;
  std::uint64_t calls_ = 0;
  Messages messages_;
};

// A request per message, submitted together.
class UringBatch final : public Sender {
 public:
  UringBatch(int fd, const Shape& shape, std::span<std::byte> source, std::unique_ptr<Uring> ring)
      : fd_(fd), burst_(shape.burst()), messages_(shape, source, 1), ring_(std::move(ring)) {}
  std::uint64_t calls() const override { return ring_->calls(); }
  std::size_t burst() const override { return burst_; }
  Result<void> send(std::span<const Burst> bursts) override {
    for (mmsghdr& message : messages_.build(bursts)) {
      io_uring_sqe* entry = ring_->next_entry();
      entry->opcode = IORING_OP_SENDMSG;
      entry->fd = fd_;
      entry->addr = reinterpret_cast<std::uint64_t>(&message.msg_hdr);
      entry->len = 1;
    }
    for (std::size_t done = 0; done < bursts.size();) {
      if (ring_->enter(static_cast<unsigned>(bursts.size() - done), kWaitNs) < 0 && errno != EINTR) {
        return failed("io_uring_enter", errno);
      }
      for (; const io_uring_cqe* one = ring_->front(); ++done) {
        if (one->res < 0) return failed("io_uring sendmsg", -one->res);
        ring_->pop();
      }
    }
    return {};
  }

 private:
  int fd_;
  std::size_t burst_;
  Messages messages_;
  std::unique_ptr<Uring> ring_;
};

// MSG_ZEROCOPY: the kernel reads the memory later and says in the error queue when it has.
class ZeroCopy final : public Sender {
 public:
  // Calls whose headers are kept, and messages outstanding at most: a header that comes round again is no longer read.
  static constexpr std::size_t kRounds = 64;
  ZeroCopy(int fd, const Shape& shape, std::span<std::byte> source)
      : fd_(fd),
        burst_(std::clamp<std::size_t>(kMostPieces / (2 + (shape.payload_bytes + 4094) / 4096), 1, shape.burst())),
        messages_(shape, source, kRounds) {}
  std::uint64_t calls() const override { return calls_; }
  std::size_t burst() const override { return burst_; }
  std::uint64_t copied() const override { return copied_; }

  Result<void> send(std::span<const Burst> bursts) override {
    for (auto rest = messages_.build(bursts); !rest.empty();) {
      const int sent = ::sendmmsg(fd_, rest.data(), static_cast<unsigned>(rest.size()), MSG_ZEROCOPY);
      ++calls_;
      if (sent < 0 && errno != ENOBUFS && errno != EINTR) return failed("sendmmsg with MSG_ZEROCOPY", errno);
      if (sent > 0) {
        rest = rest.subspan(static_cast<std::size_t>(sent));
        outstanding_ += static_cast<std::size_t>(sent);
      }
    }
    while (outstanding_ > kRounds - kMostBursts) {
      if (auto read = read_completions(); !read) return read;
    }
    return {};
  }

 private:
  Result<void> read_completions() {
    alignas(cmsghdr) std::array<std::byte, 128> control;
    msghdr header{};
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t got = ::recvmsg(fd_, &header, MSG_ERRQUEUE | MSG_DONTWAIT);
    ++calls_;
    if (got < 0 && errno != EAGAIN) return failed("recvmsg with MSG_ERRQUEUE", errno);
    if (got < 0) {
      pollfd error{fd_, 0, 0};
      ++calls_;
      if (::poll(&error, 1, 1000) == 0) return fail(ErrorCode::kSystem, "send: no completion of MSG_ZEROCOPY for 1 s");
      return {};
    }
    for (cmsghdr* one = CMSG_FIRSTHDR(&header); one != nullptr; one = CMSG_NXTHDR(&header, one)) {
      sock_extended_err told;
      std::memcpy(&told, CMSG_DATA(one), sizeof told);
      if (told.ee_origin != SO_EE_ORIGIN_ZEROCOPY) continue;
      const std::size_t messages = told.ee_data - told.ee_info + 1;
      outstanding_ -= std::min(outstanding_, messages);
      if (told.ee_code == SO_EE_CODE_ZEROCOPY_COPIED) copied_ += messages;
    }
    return {};
  }

  int fd_;
  std::size_t burst_;
  Messages messages_;
  std::size_t outstanding_ = 0;
  std::uint64_t calls_ = 0;
  std::uint64_t copied_ = 0;
};

}  // namespace

std::vector<std::string> sender_names() { return {"sendmmsg", "uring", "zerocopy"}; }

Result<std::unique_ptr<Sender>> make_sender(const std::string& name, int fd, const Shape& shape,
                                            std::span<std::byte> source) {
  const int segment = static_cast<int>(shape.datagram_bytes());
  if (::setsockopt(fd, SOL_UDP, UDP_SEGMENT, &segment, sizeof segment) != 0) return failed("UDP_SEGMENT", errno);
  if (name == "sendmmsg") return std::make_unique<Plain>(fd, shape, source);
  if (name == "uring") {
    auto ring = Uring::open(2 * Sender::kMostBursts);
    if (!ring) return tl::unexpected(ring.error());
    return std::make_unique<UringBatch>(fd, shape, source, std::move(*ring));
  }
  if (name == "zerocopy") {
    const int on = 1;
    if (::setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof on) != 0) return failed("SO_ZEROCOPY", errno);
    return std::make_unique<ZeroCopy>(fd, shape, source);
  }
  return fail(ErrorCode::kInvalidArgument, "there is no sender '" + name + "'");
}

}  // namespace clustar::bench::udp
