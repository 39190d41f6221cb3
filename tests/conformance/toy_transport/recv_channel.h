// Receiving end of a toy channel.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

#include "tests/conformance/toy_transport/pipe.h"
#include "transport/api/transport.h"
#include "transport/message/receive_groups.h"
#include "transport/message/receive_slots.h"
#include "transport/message/traffic_book.h"

namespace clustar::transport::toy {

class ToyRecvChannel final : public RecvChannel {
 public:
  ToyRecvChannel(std::shared_ptr<Pipe> pipe, TrafficBook& traffic, int traffic_class);
  ~ToyRecvChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  Result<Request*> recv(std::span<const RecvPart> parts) override;
  Result<Request*> flush(std::span<const RecvPart>) override { return nullptr; }

 private:
  struct Arrived {
    std::uint64_t bytes = 0;
  };
  struct RecvRequest final : Request {
    Result<Progress> test() override { return channel->test(group); }

    ToyRecvChannel* channel = nullptr;
    std::uint32_t group = 0;
    std::array<std::byte*, kMaxRecvParts> targets{};
  };

  Result<Progress> test(std::uint32_t group);
  void take_chunks();
  void place(const Pipe::Chunk& chunk);

  const std::shared_ptr<Pipe> pipe_;
  TrafficBook::Entry traffic_;
  ReceiveGroups groups_;
  ReceiveSlots<Arrived> slots_;
  std::array<RecvRequest, ReceiveGroups::kMost> requests_{};
  std::optional<Error> failed_;
};

}  // namespace clustar::transport::toy
