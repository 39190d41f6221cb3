#include "bench/udp/receivers.h"

#include <netinet/in.h>
#include <netinet/udp.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "transport/base/file_descriptor.h"

namespace clustar::bench::udp {
namespace {

constexpr int kWaitMs = 20;
constexpr std::size_t kBatch = 32;  // UdpOptions::receive_batch
constexpr std::size_t kMessageBytes = 65536;

struct alignas(cmsghdr) Control {
  std::byte bytes[64];
};

Result<void> failed(const char* call) {
  return fail(ErrorCode::kSystem, std::string(call) + ": " + describe_errno(errno));
}

// As UdpIo: asks whether there is something, then one recvmmsg.
class Batched : public Receiver {
 public:
  Batched(int fd, std::size_t batch) : fd_(fd), messages_(batch), controls_(batch) {}
  std::uint64_t calls() const override { return calls_; }

 protected:
  // How many messages were received; 0 after waiting in vain.
  Result<std::size_t> receive() {
    pollfd readable{fd_, POLLIN, 0};
    ++calls_;
    if (::poll(&readable, 1, kWaitMs) <= 0) return 0;
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      msghdr& header = messages_[i].msg_hdr;
      header.msg_control = controls_[i].bytes;
      header.msg_controllen = sizeof controls_[i].bytes;
      header.msg_flags = 0;
    }
    ++calls_;
    const int got = ::recvmmsg(fd_, messages_.data(), static_cast<unsigned>(messages_.size()), MSG_DONTWAIT, nullptr);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN || errno == EINTR) return 0;
    return tl::unexpected(failed("recvmmsg").error());
  }
  std::vector<mmsghdr>& messages() { return messages_; }

 private:
  int fd_;
  std::uint64_t calls_ = 0;
  std::vector<mmsghdr> messages_;
  std::vector<Control> controls_;
};

class Copying final : public Batched {
 public:
  Copying(int fd, std::size_t batch, Copy copy)
      : Batched(fd, batch), copy_(copy), memory_(batch * kMessageBytes), pieces_(batch) {
    for (std::size_t i = 0; i < batch; ++i) {
      pieces_[i] = {memory_.data() + i * kMessageBytes, kMessageBytes};
      messages()[i].msg_hdr.msg_iov = &pieces_[i];
      messages()[i].msg_hdr.msg_iovlen = 1;
    }
  }
  Result<void> poll(Assembly& into) override {
    const auto got = receive();
    if (!got) return tl::unexpected(got.error());
    for (std::size_t i = 0; i < *got; ++i) {
      const std::size_t length = messages()[i].msg_len;
      into.take(std::span(memory_).subspan(i * kMessageBytes, length), segment_bytes_of(messages()[i].msg_hdr, length),
                copy_);
      into.message_done();
    }
    return {};
  }

 private:
  Copy copy_;
  std::vector<std::byte> memory_;
  std::vector<iovec> pieces_;
};

// Every message of a batch is predicted to be as long as the latest one was; with a batch of one, as long as it can be.
class Scattering final : public Batched {
 public:
  Scattering(int fd, const Shape& shape, std::size_t batch) : Batched(fd, batch), run_(shape.burst()) {
    for (std::size_t i = 0; i < batch; ++i) plans_.emplace_back(shape);
  }
  ScatterCounts scatter() const override { return counts_; }
  Result<void> poll(Assembly& into) override {
    std::uint64_t first = into.next();
    for (std::size_t i = 0; i < plans_.size(); ++i) {
      first += plans_[i].predict(into, first, run_);
      plans_[i].fill(messages()[i].msg_hdr);
    }
    const auto got = receive();
    if (!got) return tl::unexpected(got.error());
    for (std::size_t i = 0; i < *got; ++i) {
      const std::size_t length = messages()[i].msg_len;
      const std::size_t segment_bytes = segment_bytes_of(messages()[i].msg_hdr, length);
      plans_[i].land(length, segment_bytes, counts_);
      if (plans_.size() > 1) run_ = std::max<std::size_t>(length / std::max<std::size_t>(segment_bytes, 1), 1);
    }
    for (std::size_t i = 0; i < *got; ++i) {
      plans_[i].settle(into);
      into.message_done();
    }
    return {};
  }

 private:
  std::size_t run_;
  ScatterCounts counts_;
  std::vector<ScatterPlan> plans_;
};

// Looks at the first header of each message, so that the prediction knows where its run begins and how long it is.
class Peeking final : public Receiver {
 public:
  Peeking(int fd, const Shape& shape) : fd_(fd), plan_(shape) {}
  std::uint64_t calls() const override { return calls_; }
  ScatterCounts scatter() const override { return counts_; }
  Result<void> poll(Assembly& into) override {
    pollfd readable{fd_, POLLIN, 0};
    ++calls_;
    if (::poll(&readable, 1, kWaitMs) <= 0) return {};
    for (std::size_t i = 0; i < kBatch; ++i) {
      std::byte header[kHeaderBytes];
      iovec piece{header, sizeof header};
      msghdr message{};
      message.msg_iov = &piece;
      message.msg_iovlen = 1;
      const auto length = receive(message, MSG_PEEK | MSG_TRUNC);
      if (!length) return tl::unexpected(length.error());
      if (*length == 0) return {};
      plan_.predict(into, segment_of(header), *length / into.shape().datagram_bytes());
      plan_.fill(message);
      const auto got = receive(message, 0);
      if (!got) return tl::unexpected(got.error());
      plan_.land(*got, segment_bytes_of(message, *got), counts_);
      plan_.settle(into);
      into.message_done();
    }
    return {};
  }

 private:
  // 0: nothing is there.
  Result<std::size_t> receive(msghdr& message, int flags) {
    message.msg_control = control_.bytes;
    message.msg_controllen = sizeof control_.bytes;
    ++calls_;
    const ssize_t got = ::recvmsg(fd_, &message, flags | MSG_DONTWAIT);
    if (got >= 0) return static_cast<std::size_t>(got);
    if (errno == EAGAIN || errno == EINTR) return 0;
    return tl::unexpected(failed("recvmsg").error());
  }

  int fd_;
  std::uint64_t calls_ = 0;
  ScatterCounts counts_;
  ScatterPlan plan_;
  Control control_;
};

}  // namespace

std::size_t segment_bytes_of(msghdr& header, std::size_t length) {
  for (cmsghdr* control = CMSG_FIRSTHDR(&header); control != nullptr; control = CMSG_NXTHDR(&header, control)) {
    if (control->cmsg_level != SOL_UDP || control->cmsg_type != UDP_GRO) continue;
    int segment = 0;
    std::memcpy(&segment, CMSG_DATA(control), sizeof segment);
    if (segment > 0) return static_cast<std::size_t>(segment);
  }
  return length;
}

std::vector<std::string> receiver_names() {
  return {"copy",         "copy-one",   "copy-stream",   "scatter", "scatter-batch",
          "scatter-peek", "uring-copy", "uring-scatter", "nowhere"};
}

Result<std::unique_ptr<Receiver>> make_receiver(const std::string& name, int fd, const Shape& shape) {
  if (name == "copy") return std::make_unique<Copying>(fd, kBatch, Copy::kUsual);
  if (name == "copy-one") return std::make_unique<Copying>(fd, 1, Copy::kUsual);
  if (name == "copy-stream") return std::make_unique<Copying>(fd, kBatch, Copy::kStreaming);
  if (name == "nowhere") return std::make_unique<Copying>(fd, kBatch, Copy::kNone);
  if (name == "scatter") return std::make_unique<Scattering>(fd, shape, 1);
  if (name == "scatter-batch") return std::make_unique<Scattering>(fd, shape, kBatch);
  if (name == "scatter-peek") return std::make_unique<Peeking>(fd, shape);
  if (name == "uring-copy") return make_multishot(fd, shape);
  if (name == "uring-scatter") return make_one_shot_scatter(fd, shape);
  return fail(ErrorCode::kInvalidArgument, "there is no receiver '" + name + "'");
}

}  // namespace clustar::bench::udp
