// Sending end of a channel: reads what the receiver has posted from its ring, and writes messages into the receiver's
// memory over all queue pairs. Guarded by the NIC's lock, since any thread of it may pump.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/base/ring.h"
#include "transport/message/memory_anchor.h"
#include "transport/message/request_pool.h"
#include "transport/message/stall_report.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/verbs/core/posted.h"
#include "transport/verbs/core/send_matcher.h"
#include "transport/verbs/core/stripes.h"
#include "transport/verbs/link.h"
#include "transport/verbs/wiring.h"
#include "transport/verbs/work_chain.h"

namespace clustar::transport::verbs {

class VerbsSendChannel final : public SendChannel, private ChunkWire {
 public:
  struct Facts {
    SendQueue::ConnectionFacts connection{};
    PeerInfo peer{};
    std::string shown{};  // the peer, in errors
    int traffic_class = -1;
    bool identify = false;  // the peer reads what each message is
  };
  VerbsSendChannel(Nic& nic, const Facts& facts, std::unique_ptr<Wiring> wiring, net::Socket control);
  ~VerbsSendChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) override;

  // For tests: queue pair `pair` fails, because the peer refuses a write to what is not its memory, or without a word.
  void break_pair(std::size_t pair, bool silently = false);

 private:
  class SendMr;
  friend class MemoryAnchor<VerbsSendChannel>;

  static constexpr std::uint32_t kMaxRequests = kMaxSlots;
  static constexpr std::uint64_t kMaxSend = std::uint64_t{32} << 30;  // kMaxStripes of what a work request may carry
  static constexpr std::uint64_t kMostStripe = 1 << 20;  // so fine can a scheduler order what waits on the NIC
  static constexpr std::uint64_t kMostUnderWay = 16 << 20;
  static constexpr std::uint32_t kMostRequests = 3;  // of one posting
  static constexpr std::uint64_t kWatchPolls = 64;
  static constexpr int kReadAtOnce = 64;
  // Immediates for which the peer has receives whatever its program does: much below QueuePairs::kRecvDepth.
  static constexpr std::uint32_t kMostUnheard = 64;

  struct SendRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    VerbsSendChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{false};  // set under the NIC's lock, by whichever thread pumps
    const Mr* mr = nullptr;
    std::size_t offset = 0;
    FlowTag flow{};
    SendMatcher::Departure way{};
    StripePlan plan{};
    std::size_t first_pair = 0;
    std::uint64_t unsent = 0;
    std::uint32_t open = 0;  // postings that are not acknowledged
    std::size_t size = 0;    // what test reports
  };

  Result<Progress> test(SendRequest& request);
  void progress();
  void watch();
  void read_ring();
  void take_completions();
  void depart(const SendMatcher::Departure& departure);
  // A chunk is a stripe.
  std::uint64_t chunk_limit(std::uint64_t cookie) const override;
  bool start_chunk(const SendQueue::Chunk& chunk) override;
  // The thread that pumps takes the completions: the channel's own thread may be away while its bytes have long left.
  std::uint64_t ahead_bytes() override;
  bool has_room(std::size_t pair, std::uint64_t bytes) const;
  WorkChain::Target landing(std::size_t pair, std::size_t offset) const;
  ibv_sge write_header(std::size_t pair, const SendRequest& request);
  ibv_sge payload(std::size_t pair, const SendRequest& request, const Posting& posting) const;
  // Each adds one posting's work requests and answers the immediate of the last.
  Immediate add_eager(std::size_t pair, const Posting& posting, WorkChain* chain);
  Immediate add_stripe(std::size_t pair, const Posting& posting, WorkChain* chain);
  Immediate add_consumed(std::size_t pair, WorkChain* chain);
  void post(std::size_t pair, const Posting& wanted);
  void send_again();
  void tell_consumed();
  void remind();
  void acknowledge(const Posting& posting);
  void drain();
  bool adaptive(std::size_t pair, std::uint64_t bytes) const;
  void on_deregister(const Mr& mr);
  std::optional<Error> check_stall();

  Nic& nic_;
  const bool identify_;
  TrafficBook::Entry traffic_;
  std::shared_ptr<MemoryAnchor<VerbsSendChannel>> anchor_;
  const Contact peer_;
  const LandingLayout landing_;
  ChannelMemory memory_;  // before link_: queue pairs are destroyed before it
  Link link_;
  SendMatcher matcher_;
  std::array<PostedQueue, kMaxQueuePairs> posted_{};
  Ring<Posting> again_;          // did not arrive before their queue pair failed
  std::uint64_t under_way_ = 0;  // bytes that were posted and are not acknowledged
  std::size_t next_pair_ = 0;
  std::uint32_t immediates_ = 0;  // posted since the peer's latest descriptor
  RequestPool<SendRequest> requests_;
  std::uint64_t polls_ = 0;
  StallReport stall_;
  SendQueue::ConnectionId connection_;
};

}  // namespace clustar::transport::verbs
