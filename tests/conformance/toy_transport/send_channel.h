// Sending end of a toy channel: a message leaves once the peer said that its receive is posted.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "tests/conformance/toy_transport/pipe.h"
#include "transport/api/transport.h"
#include "transport/base/ring.h"
#include "transport/message/memory_anchor.h"
#include "transport/message/request_pool.h"
#include "transport/message/send_engine.h"
#include "transport/message/traffic_book.h"

namespace clustar::transport::toy {

class ToySendChannel final : public SendChannel, private ChunkWire {
 public:
  ToySendChannel(SendEngine& engine, std::shared_ptr<Pipe> pipe, const SendQueue::ConnectionFacts& facts,
                 TrafficBook::Entry traffic, int peer_rank);
  ~ToySendChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) override;

 private:
  class SendMr;
  friend class MemoryAnchor<ToySendChannel>;
  static constexpr std::uint64_t kChunk = 64 * 1024;

  struct SendRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    ToySendChannel* channel = nullptr;
    std::uint32_t index = 0;
    std::atomic<bool> done{false};
    const Mr* mr = nullptr;  // while it may be read
    std::size_t offset = 0;
    FlowTag flow{};
    std::uint32_t slot = 0;
    std::size_t size = 0;
    std::uint64_t unsent = 0;
  };
  struct Tag {
    Ring<std::uint32_t> waiting{};  // requests, in order; or
    Ring<Pipe::Clear> known{};      // receives that no message was given for yet
  };

  Result<Progress> test(SendRequest& request);
  void take_clears();
  void depart(SendRequest& request, const Pipe::Clear& clear);
  void on_deregister(const Mr& mr);
  std::uint64_t chunk_limit(std::uint64_t) const override { return kChunk; }
  bool start_chunk(const SendQueue::Chunk& chunk) override;
  std::uint64_t ahead_bytes() override;

  SendEngine& engine_;
  const std::shared_ptr<Pipe> pipe_;
  std::shared_ptr<MemoryAnchor<ToySendChannel>> anchor_;
  TrafficBook::Entry traffic_;
  RequestPool<SendRequest> requests_;
  std::map<int, Tag> tags_;
  std::optional<Error> failed_;
  SendQueue::ConnectionId connection_;
};

}  // namespace clustar::transport::toy
