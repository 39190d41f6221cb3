// Sending end of a connection: several data sockets that only carry chunks away, and a control socket that only brings
// clear-to-sends. Because nothing ever arrives on the data sockets, closing them never discards bytes in flight.
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
#include "transport/message/memory_anchor.h"
#include "transport/message/request_pool.h"
#include "transport/message/send_engine.h"
#include "transport/message/stall_report.h"
#include "transport/message/traffic_book.h"
#include "transport/net/socket.h"
#include "transport/tcp/chunk_writer.h"
#include "transport/tcp/core/send_matcher.h"
#include "transport/tcp/nic.h"

namespace clustar::transport::tcp {

class TcpSendChannel final : public SendChannel, private ChunkWire {
 public:
  struct Facts {
    SendQueue::ConnectionFacts connection{};
    PeerInfo peer{};
    std::string shown{};  // the peer, in errors
    int traffic_class = -1;
    bool identify = false;  // the peer reads what each message is
  };
  TcpSendChannel(Nic& nic, Facts facts, net::Socket control, std::vector<net::Socket> data);
  ~TcpSendChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) override;

 private:
  class SendMr;
  friend class MemoryAnchor<TcpSendChannel>;

  // 32 requests of up to 8 parts at the receiver are 256 sends here.
  static constexpr std::uint32_t kMaxRequests = kMaxSlots;
  static constexpr std::uint64_t kLivenessPolls = 64;
  static constexpr std::uint64_t kControlSends = 64;
  static constexpr std::uint64_t kKernelPolls = 4096;
  // A message up to this size waits, when it may, for others to share its system call: until the next test of any
  // request, or until so much is queued.
  static constexpr std::uint64_t kGatherMessage = 16 * 1024;
  static constexpr std::uint64_t kGatherBytes = 32 * 1024;
  static constexpr std::size_t kGatherCount = 8;
  // Up to this size a message stays on one socket.
  static constexpr std::uint64_t kSmall = 64 * 1024;

  struct SendRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    TcpSendChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{false};  // set under the NIC's lock, by whichever thread pumps
    const Mr* mr = nullptr;         // while it may be read
    const std::byte* data = nullptr;
    FlowTag flow;
    ChunkHeader header;
    std::uint64_t unsent = 0;
    std::size_t size = 0;  // what test reports
  };

  Result<Progress> test(SendRequest& request);
  void progress();
  void read_control();
  void depart(const SendMatcher::Departure& departure);
  ChunkWriter* writer_for(bool small);
  std::uint64_t chunk_limit(std::uint64_t cookie) const override;
  // False: what it holds has another class, and the socket is full.
  bool give_class(ChunkWriter& writer, std::uint8_t level);
  // A small chunk may only be gathered.
  bool start_chunk(const SendQueue::Chunk& chunk) override;
  // Here, or in the kernel and never sent.
  std::uint64_t ahead_bytes() override;
  void end_of_pump() override;
  void flush(ChunkWriter& writer);
  void finish_chunk(const ChunkWriter::Sent& sent);
  void on_deregister(const Mr& mr);
  void fail_with(ErrorCode code, const std::string& what);
  std::optional<Error> check_stall();
  void ask_kernel();

  Nic& nic_;
  std::shared_ptr<MemoryAnchor<TcpSendChannel>> anchor_;
  net::Socket control_;
  std::vector<ChunkWriter> data_;
  const std::string peer_;
  const bool identify_;
  const bool has_class_;  // the communicator's own
  TrafficBook::Entry traffic_;
  SendMatcher matcher_;
  RequestPool<SendRequest> requests_;
  std::array<std::byte, ClearToSend::kSize * 128> control_in_{};
  std::size_t control_have_ = 0;
  std::size_t next_socket_ = 0;
  std::uint64_t polls_ = 0;
  std::uint64_t sends_ = 0;
  std::uint64_t progress_marks_ = 0;
  StallReport stall_;
  std::optional<Error> failed_;
  SendQueue::ConnectionId connection_;
};

}  // namespace clustar::transport::tcp
