// Receiving end of a connection: takes frames from the device's endpoint, asks for the payloads that they announce
// where these belong, and tells the sender on the control connection what is posted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libfabric_shim/rdm/channel_memory.h"
#include "libfabric_shim/rdm/clear_batch.h"
#include "libfabric_shim/rdm/nic.h"
#include "transport/api/transport.h"
#include "transport/message/stall_report.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/tcp/core/recv_matcher.h"

namespace clustar::transport::ofi {

class OfiRecvChannel final : public RecvChannel, private Exchange::Owner {
 public:
  struct Facts {
    PeerInfo peer{};
    std::string shown{};  // the peer, in errors
    int traffic_class = -1;
  };
  // Frames come to it from now on. Error: Exchange::open_channel's.
  static Result<std::unique_ptr<OfiRecvChannel>> open(Nic& nic, Rails rails, Facts facts, net::Socket control);
  ~OfiRecvChannel() override;

  const std::vector<ChannelName>& channels() const { return channels_; }  // by rail
  const net::Socket& control() const { return control_; }
  // A frame came on each rail, so the fabric carries. Polls. Error: the connection ended before.
  Result<bool> greeted();

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> recv(std::span<const RecvPart> parts) override;
  Result<Request*> flush(std::span<const RecvPart> parts) override;

 private:
  using Memory = ChannelMemory<OfiRecvChannel>;
  friend class MemoryAnchor<OfiRecvChannel>;

  static constexpr std::uint64_t kLivenessPolls = 64;
  // A sender that closed said how many frames it sent; these are under way. One that died said nothing.
  static constexpr Duration kLastFrames = std::chrono::milliseconds(2500);
  static constexpr Duration kLastOfTheDead = std::chrono::milliseconds(500);
  static constexpr Duration kCancels = std::chrono::seconds(3);  // for a provider to say that a receive is over
  static constexpr std::uint32_t kTellTaken = kFrames / 2;
  // After a receive ahead for which its message did not come, so many are not: senders keep to their habits.
  static constexpr std::uint32_t kNotAhead = 32;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct RecvRequest final : Request {
    Result<Progress> test() override { return channel->test(group); }

    OfiRecvChannel* channel = nullptr;
    std::uint32_t group = 0;
    bool open = false;
    std::uint32_t ahead = 0;  // receives of its that are ahead
    std::array<std::byte*, kMaxRecvParts> targets{};
    std::array<const Mr*, kMaxRecvParts> memory{};
  };
  struct Awaited {  // a payload that a frame announced, or a whole message
    tcp::RecvMatcher::Placement placement{};
    ChunkHeader header{};
    bool ahead = false;  // a whole message, of which nothing is known but the group
  };

  OfiRecvChannel(Nic& nic, Rails rails, Facts facts, net::Socket control);

  void on_frame(const FrameHead& head, std::span<const std::byte> bytes) override;
  void on_received(std::uint32_t cookie, std::size_t bytes) override;
  void on_cancelled(std::uint32_t cookie) override;
  bool on_reminder() override;
  void on_failure(const Error& error) override;
  void on_deregister(const Mr& mr);
  // False: nobody waits for it, or what is behind it: keep it.
  bool take_frame(const FrameHead& head, std::span<const std::byte> bytes);
  bool take_chunk(const FrameHead& head, const ChunkHeader& header, std::span<const std::byte> payload);
  void take_held();
  void post_ahead(std::uint32_t group, std::vector<ClearToSend>& clears);
  // Its message comes otherwise.
  void cancel_ahead(std::uint32_t slot);
  void take_whole(const Awaited& awaited, std::size_t bytes);
  std::uint32_t take_cookie();
  void on_payload(const tcp::RecvMatcher::Placement& placement, const ChunkHeader& header);
  void copy_early(std::uint32_t group, const tcp::RecvMatcher::EarlyMatch& match);
  Result<Progress> test(std::uint32_t group);
  void progress();
  void say();
  void tell_taken();
  void close_rails();
  void check_control();
  void on_control_lost(int error);
  void check_lost_control();
  void check_cancels();
  bool peer_died() const { return !control_open_ && !farewell_; }
  void fail_with(const std::string& what);
  std::optional<Error> check_stall();

  Nic& nic_;
  const Rails rails_;
  const Facts facts_;
  const Memory::Anchor anchor_;
  net::Socket control_;
  std::vector<ChannelName> channels_;
  TrafficBook::Entry traffic_;
  tcp::RecvMatcher matcher_;
  ClearBatch clears_;
  std::array<RecvRequest, tcp::RecvMatcher::kMaxGroups> requests_;
  std::vector<std::vector<std::byte>> early_;  // payload that came before its receive
  struct Held {
    FrameHead head{};
    std::vector<std::byte> bytes{};
  };
  std::deque<Held> held_;  // frames for which nobody waits, at most kFrames
  std::vector<Awaited> awaited_;
  std::vector<std::uint32_t> free_awaited_;
  std::array<std::uint32_t, tcp::kMaxSlots> ahead_;  // by slot: the cookie of its receive
  std::size_t receives_ahead_ = 0;
  std::size_t cancelling_ = 0;      // of them
  TimePoint cancels_since_{};       // the latest news of those
  std::uint32_t not_ahead_ = 0;     // so many more receives
  std::uint64_t announced_ = 0;     // payloads that are still to come
  const std::uint64_t most_ahead_;  // bytes of a receive
  std::array<std::byte, Note::kSize> words_{};
  std::size_t words_have_ = 0;
  std::uint64_t directs_ = 0;  // whole messages that came
  std::uint64_t frames_ = 0;   // that came
  std::uint64_t taken_ = 0;    // of them
  std::uint64_t told_ = 0;     // of those, to the sender
  std::uint64_t marks_ = 0;    // grows with all that comes
  std::uint32_t small_run_ = 0;
  std::uint64_t polls_ = 0;
  bool control_open_ = true;
  std::optional<std::uint64_t> farewell_;  // frames and whole messages that were sent in all
  std::optional<TimePoint> quiet_since_;   // while control is lost
  std::uint64_t marks_at_quiet_ = 0;
  StallReport stall_;
  std::optional<Error> failed_;
};

}  // namespace clustar::transport::ofi
