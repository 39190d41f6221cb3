// Sending end of a connection: chunks leave by the device's endpoint, clear-to-sends come on the control connection,
// which also tells that the peer's process or host is gone, for the fabric does not.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libfabric_shim/rdm/channel_memory.h"
#include "libfabric_shim/rdm/nic.h"
#include "transport/api/transport.h"
#include "transport/message/request_pool.h"
#include "transport/message/send_engine.h"
#include "transport/message/stall_report.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/tcp/core/send_matcher.h"

namespace clustar::transport::ofi {

class OfiSendChannel final : public SendChannel, private ChunkWire, private Exchange::Owner {
 public:
  struct Facts {
    SendQueue::ConnectionFacts connection{};
    PeerInfo peer{};
    std::string shown{};  // the peer, in errors
    int traffic_class = -1;
    bool identify = false;  // the peer reads what each message is
    // The receiving end on a rail.
    struct End {
      fi_addr_t address = FI_ADDR_UNSPEC;
      ChannelName channel{};
    };
    std::vector<End> ends{};
    SharedSettings settings{};
  };
  // One frame, the hello, was sent on each rail. As many rails as ends.
  OfiSendChannel(Nic& nic, Rails rails, Facts facts, net::Socket control);
  ~OfiSendChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) override;

 private:
  using Memory = ChannelMemory<OfiSendChannel>;
  friend class MemoryAnchor<OfiSendChannel>;

  // 32 requests of up to 8 parts at the receiver are 256 sends here.
  static constexpr std::uint32_t kMaxRequests = tcp::kMaxSlots;
  static constexpr std::uint32_t kMaxPayloads = 32;  // under way
  static constexpr std::uint64_t kLivenessPolls = 64;
  // For so long what was heard of the peer is good enough to send to a receive of its.
  static constexpr Duration kFresh = std::chrono::milliseconds(100);
  static constexpr Duration kDrain = std::chrono::seconds(1);
  static constexpr std::uint32_t kDrained = kMaxRequests;  // the cookie of what is sent last
  // A receiver that closed took what it took: its last acknowledgements may still be under way.
  static constexpr Duration kLastWords = std::chrono::milliseconds(500);

  struct SendRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    OfiSendChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{false};  // set under the NIC's lock, by whichever thread polls
    const Mr* mr = nullptr;         // while it may be read
    std::byte* data = nullptr;
    FlowTag flow;
    ChunkHeader header;
    bool posted = false;          // its receive, under direct_tag()
    std::uint64_t unsent = 0;     // not handed to the fabric
    std::uint32_t under_way = 0;  // frames and payloads
    std::size_t size = 0;         // what test reports
  };
  struct Owed {  // a payload that was announced, and for which the provider had no room
    Exchange::Payload payload{};
    std::uint32_t cookie = 0;
    std::size_t rail = 0;
  };

  Result<Progress> test(SendRequest& request);
  void progress();
  void read_control();
  void on_words(std::span<const std::byte, ClearToSend::kSize> words);
  void on_control_lost(const std::string& why);
  void check_lost_control();
  void depart(const tcp::SendMatcher::Departure& departure);
  std::uint64_t chunk_limit(std::uint64_t cookie) const override;
  bool start_chunk(const SendQueue::Chunk& chunk) override;
  bool start_direct(SendRequest& request, std::uint32_t cookie);
  bool send_owed();
  // What is done, but has no completion, leaves before the endpoint may end.
  void drain_injected();
  // Handed to the fabric, and not completed.
  std::uint64_t ahead_bytes() override;
  void on_sent(std::uint32_t cookie, std::size_t bytes) override;
  void on_failure(const Error& error) override;
  void on_deregister(const Mr& mr);
  void finish(SendRequest& request);
  void fail_with(ErrorCode code, const std::string& what);
  std::optional<Error> check_stall();
  // And did not close its end.
  bool peer_died() const { return !control_lost_.empty() && !peer_left_; }
  bool has_credit() const { return frames_sent_ - frames_taken_ < kFrames; }

  Nic& nic_;
  const Rails rails_;
  const Facts facts_;
  const Memory::Anchor anchor_;
  net::Socket control_;
  TrafficBook::Entry traffic_;
  tcp::SendMatcher matcher_;
  const std::uint32_t most_inline_;  // bytes that are copied into a frame; 0 where they may be a GPU's
  RequestPool<SendRequest> requests_;
  std::array<std::byte, ClearToSend::kSize * 128> control_in_{};
  std::size_t control_have_ = 0;
  std::uint64_t frames_sent_;
  std::uint64_t frames_taken_ = 0;
  std::uint64_t directs_sent_ = 0;  // messages without a frame
  bool injected_ = false;           // a frame, since anything that completes was posted
  bool draining_ = false;
  TimePoint heard_{};  // when the control connection was read
  std::uint32_t payloads_sent_ = 0;
  std::uint32_t under_way_ = 0;
  std::uint64_t bytes_under_way_ = 0;
  std::optional<Owed> owed_;
  std::uint64_t polls_ = 0;
  std::uint64_t progress_marks_ = 0;
  bool peer_left_ = false;    // it closed its end, and lives
  std::string control_lost_;  // why; empty: it stands
  TimePoint lost_since_{};
  std::uint64_t marks_at_loss_ = 0;
  StallReport stall_;
  std::optional<Error> failed_;
  SendQueue::ConnectionId connection_;
};

}  // namespace clustar::transport::ofi
