// Receiving end of a staged channel.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/api/transport.h"
#include "transport/staged/options.h"
#include "transport/staged/stage.h"

namespace clustar::transport::staged {

class StagedRecvChannel final : public RecvChannel {
 public:
  StagedRecvChannel(Context& context, std::unique_ptr<RecvChannel> inner);
  ~StagedRecvChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  // Of host memory alone, when nothing staged waits for its turn: the inner channel's own request.
  Result<Request*> recv(std::span<const RecvPart> parts) override;
  // Null for GPU memory: a copy that ended is visible (DeviceCopy::done), also to NCCL's kernels, which run already:
  // its own copy-engine path (p2p.cc, useMemcpy) tells them as soon as the event behind a copy is done, without more.
  // In emulation a request that takes some tests, so that a missing flush shows.
  Result<Request*> flush(std::span<const RecvPart> parts) override;

 private:
  static constexpr std::uint32_t kMaxRequests = 32;  // NCCL_NET_MAX_REQUESTS
  static constexpr std::uint32_t kEmulatedFlushTests = 3;

  static_assert(kMaxRecvParts <= gdr::Staging::kMaxParts);

  struct RecvRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    StagedRecvChannel* channel = nullptr;
    Stage::Id id = 0;
    std::size_t count = 0;
    std::array<RecvPart, kMaxRecvParts> parts{};
    Request* inner = nullptr;  // while the inner channel has it
    std::array<std::size_t, kMaxRecvParts> sizes{};
    std::vector<MissingRange> missing;
    std::vector<ReceivedMessage> messages;
  };
  struct FlushRequest final : Request {
    Result<Progress> test() override;

    Request* inner = nullptr;  // the host parts', while it is not done
    std::uint32_t tests_left = 0;
    bool used = false;
  };

  Result<Progress> test(RecvRequest& request);
  void progress(RecvRequest* request);
  void hand_over();
  void look(RecvRequest& request);

  Context& context_;
  Stage stage_;
  std::vector<RecvRequest> requests_;                   // by the stage's id
  std::vector<std::unique_ptr<FlushRequest>> flushes_;  // as many as were outstanding at once
  bool inner_full_ = false;                             // it took nothing more when it was last asked
  std::unique_ptr<RecvChannel> inner_;
};

}  // namespace clustar::transport::staged
