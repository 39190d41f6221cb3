// Receiving end of a channel: writes what is posted into the sender's ring, and counts what arrives in memory. Used by
// one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/api/transport.h"
#include "transport/message/stall_report.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/verbs/core/recv_matcher.h"
#include "transport/verbs/eager_writer.h"
#include "transport/verbs/flusher.h"
#include "transport/verbs/link.h"
#include "transport/verbs/wiring.h"

namespace clustar::transport::verbs {

class VerbsRecvChannel final : public RecvChannel {
 public:
  // `shown`: the peer, in errors.
  static Result<std::unique_ptr<VerbsRecvChannel>> make(Nic& nic, std::unique_ptr<Wiring> wiring, net::Socket control,
                                                        const PeerInfo& peer, const std::string& shown,
                                                        int traffic_class);

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> recv(std::span<const RecvPart> parts) override;
  Result<Request*> flush(std::span<const RecvPart> parts) override;

 private:
  static constexpr std::uint64_t kWatchPolls = 64;
  static constexpr int kBatchesPerPoll = 16;
  // A completion that is behind the peer's last word would come at once.
  static constexpr Duration kLastArrivals = std::chrono::milliseconds(100);

  struct RecvRequest final : Request {
    Result<Progress> test() override { return channel->test(group); }

    VerbsRecvChannel* channel = nullptr;
    std::uint32_t group = 0;
    std::uint32_t writes = 0;  // eager messages on their way into a GPU's memory
    std::array<RecvPart, kMaxRecvParts> parts{};
  };

  VerbsRecvChannel(Nic& nic, std::unique_ptr<Wiring> wiring, net::Socket control, const PeerInfo& peer,
                   const std::string& shown, int traffic_class);

  Result<Progress> test(std::uint32_t group);
  void progress();
  void watch(bool arrived);
  void on_immediate(std::uint32_t word);
  bool complete(std::uint32_t group) const { return matcher_.complete(group) && requests_[group].writes == 0; }
  // Into host memory at once, into a GPU's by the NIC: then place and receive wait for take_written().
  void take_eager(const RecvMatcher::EagerMatch& match);
  void take_written();
  std::optional<MessageHeader> header_at(std::size_t offset) const;
  void write_descriptor(std::uint32_t group, const RecvMatcher::Wanted& wanted);
  // Tells the sender all that it was not told yet, as far as there is room.
  void describe();
  bool describe_some(std::size_t pair);
  bool tell_freed(std::size_t pair, bool signaled = false);
  void remind();
  // `signaled`: its completion is wanted, and not only of every sixteenth.
  bool post(std::size_t pair, std::size_t staged, std::size_t target, std::size_t length, bool signaled = false);
  std::optional<Error> check_stall();

  Nic& nic_;
  TrafficBook::Entry traffic_;
  const Contact peer_;
  const LandingLayout landing_;
  ChannelMemory memory_;  // before link_: queue pairs are destroyed before it
  Link link_;
  RecvMatcher matcher_;
  std::unique_ptr<Flusher> flusher_;           // null: nothing needs a flush
  std::unique_ptr<EagerWriter> eager_writer_;  // null: no memory of GPUs, or nothing eager
  std::vector<EagerWriter::Written> written_eager_;
  std::array<RecvRequest, kMaxRequests> requests_{};
  std::uint32_t described_ = 0;   // descriptors that were posted
  std::uint32_t told_freed_ = 0;  // what the sender knows, or is about to, of RecvMatcher::freed()
  std::array<std::uint32_t, kMaxQueuePairs> writes_{};   // posted since the beginning
  std::array<std::uint32_t, kMaxQueuePairs> written_{};  // acknowledged of them
  std::uint64_t polls_ = 0;
  std::optional<TimePoint> closed_since_;
  StallReport stall_;
};

}  // namespace clustar::transport::verbs
