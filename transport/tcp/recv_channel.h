// Receiving end of a connection: reads chunks from the data sockets into posted receives and tells the sender on the
// control socket what is posted. Used by one thread at a time; shares nothing with other channels but counters.
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
#include "transport/tcp/chunk_reader.h"
#include "transport/tcp/core/recv_matcher.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpRecvChannel final : public RecvChannel {
 public:
  // `sender`: what the peer sends by. `shown`: the peer, in errors.
  TcpRecvChannel(Nic& nic, const SharedSettings& sender, net::Socket control, std::vector<net::Socket> data,
                 PeerInfo peer, std::string shown, int traffic_class);

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> recv(std::span<const RecvPart> parts) override;
  Result<Request*> flush(std::span<const RecvPart> parts) override;

 private:
  static constexpr std::uint64_t kLivenessPolls = 64;
  static constexpr std::uint64_t kIdleSocketPolls = 16;
  static constexpr std::uint64_t kHotPolls = 64;
  static constexpr int kChunksPerPoll = 64;
  // A closing sender loses its control connection and its data connections together.
  static constexpr Duration kLostControlTimeout = std::chrono::milliseconds(2500);
  // Receives of eager size, and all receives after so many eager messages in a row, announce themselves in batches,
  // because their messages mostly come without being asked for.
  static constexpr std::uint32_t kEagerRun = 16;
  static constexpr std::size_t kLazyCount = 32;
  // Little for a long message that comes after small ones; a receive that no long message fits into may wait longer.
  static constexpr Duration kLazyTime = std::chrono::microseconds(20);
  static constexpr Duration kLazySmallTime = std::chrono::microseconds(200);

  struct RecvRequest final : Request {
    Result<Progress> test() override { return channel->test(group); }

    TcpRecvChannel* channel = nullptr;
    std::uint32_t group = 0;
    std::array<std::byte*, kMaxRecvParts> targets{};
  };

  Result<Progress> test(std::uint32_t group);
  void progress();
  void drain(std::size_t socket);
  bool on_header(std::size_t socket);
  void on_chunk(std::size_t socket);
  void copy_early(std::uint32_t group, const RecvMatcher::EarlyMatch& match);
  void announce(const std::vector<ClearToSend>& clears);
  void flush_clears();
  void check_control();
  void on_control_error(int error);
  void check_lost_control(TimePoint now);
  void fail_with(const std::string& what);
  std::optional<Error> check_stall();
  std::uint64_t bytes_read() const;

  Nic& nic_;
  const SharedSettings sender_;
  net::Socket control_;
  const std::string peer_;
  TrafficBook::Entry traffic_;
  RecvMatcher matcher_;
  std::vector<ChunkReader> readers_;
  std::vector<RecvMatcher::Placement> placements_;  // of the chunk that each reader is in
  std::vector<bool> held_;                          // the reader's header waits for its receive
  std::array<RecvRequest, RecvMatcher::kMaxGroups> requests_;
  std::vector<std::vector<std::byte>> early_;  // payload that came before its receive
  std::vector<std::byte> control_out_;
  std::uint64_t held_bytes_ = 0;  // that the receives in control_out_ may take from the sender's window
  std::uint32_t eager_run_ = 0;   // eager messages since the last one that was not
  TimePoint clears_due_{};        // when control_out_ is written at the latest; min(): now
  bool control_open_ = true;
  std::uint64_t bytes_at_mark_ = 0;  // while control is lost: what had arrived at mark_
  std::optional<TimePoint> mark_;
  std::uint64_t polls_ = 0;
  std::uint64_t hot_until_ = 0;  // poll number up to which every socket is looked at each time
  StallReport stall_;
  std::optional<Error> failed_;
};

}  // namespace clustar::transport::tcp
