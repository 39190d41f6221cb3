// The connection on which an endpoint sends to one peer: made when the first message goes there, in stages of which
// none blocks. Messages leave in the order in which they were submitted.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "libfabric_shim/provider/core/silence.h"
#include "libfabric_shim/provider/types.h"

namespace clustar::libfabric_shim::provider {

class Outbound {
 public:
  Outbound(Setup& setup, const transport::net::Address& peer);
  ~Outbound();
  Outbound(const Outbound&) = delete;
  Outbound& operator=(const Outbound&) = delete;

  void submit(Outgoing message);
  void progress();
  // All that was submitted before it failed has completed with the error.
  bool failed() const { return stage_ == Stage::kFailed; }
  // The peer has closed its connection to us: it may be gone, which an idle one of ours would not notice. So before the
  // next message leaves, who listens there is asked once more.
  void suspect() { suspect_ = true; }
  std::size_t outstanding() const { return queue_.size() + sent_.size() + payloads_; }
  // Without the program's own buffers that wait for a receive of the peer's.
  std::size_t leaving() const { return queue_.size() + sent_.size(); }

 private:
  static constexpr std::size_t kBuffers = 32;
  enum class Stage : std::uint8_t { kDials, kAsks, kHears, kConnects, kReady, kFailed };
  // A message on tag 0. `completes` if its payload went with it.
  struct Sent {
    transport::Request* request;
    Operation operation;
    bool completes;
  };
  struct Payload {
    bool used = false;
    Outgoing message{};
    std::unique_ptr<transport::Mr> mr{};
    transport::Request* request = nullptr;  // null: not yet handed to the channel
  };

  void dial();
  void dial_again();
  void ask();
  void hear();
  void connect();
  void pump();
  bool finish_sent();
  bool finish_payloads();
  bool start();  // the first that is queued; false: later, or it failed
  bool say(const Header& header, const std::byte* payload, const Operation& operation, bool completes);
  bool hand_on(Payload& payload, int tag);
  void fail_with(int error, const std::string& why);
  void report(const Operation& operation, int error);

  Setup& setup_;
  const transport::net::Address peer_;
  Stage stage_ = Stage::kDials;
  int error_ = 0;  // of all, once it failed
  bool suspect_ = false;
  std::array<std::byte, kHandleBytes> handle_{};  // of the endpoint to which the channel leads
  TimePoint deadline_;
  Silence silence_;
  transport::net::Socket socket_;
  std::array<std::byte, Answer::kSize> heard_{};
  std::size_t have_ = 0;
  std::uint32_t eager_bytes_ = 0;
  std::unique_ptr<transport::PendingConnect> pending_;
  std::deque<Outgoing> queue_;
  std::deque<Sent> sent_;
  std::size_t next_buffer_ = 0;  // buffers are free again in the order in which they were taken
  std::array<Payload, kSlots> slots_;
  std::size_t payloads_ = 0;
  std::vector<std::byte> memory_;
  // Registrations end before their channel.
  std::unique_ptr<transport::SendChannel> channel_;
  std::unique_ptr<transport::Mr> mr_;
};

}  // namespace clustar::libfabric_shim::provider
