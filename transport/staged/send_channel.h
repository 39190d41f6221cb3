// Sending end of a staged channel.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "transport/api/transport.h"
#include "transport/staged/options.h"
#include "transport/staged/stage.h"

namespace clustar::transport::staged {

class StagedSendChannel final : public SendChannel {
 public:
  StagedSendChannel(Context& context, std::unique_ptr<SendChannel> inner);
  ~StagedSendChannel() override;

  Result<std::unique_ptr<Mr>> reg_mr(const gdr::MemoryRef& memory) override;
  // Of host memory, when nothing staged waits for its turn: the inner channel's own request.
  Result<Request*> send(const Mr& mr, std::size_t offset, std::size_t length, int tag, const FlowTag& flow) override;

 private:
  // As the transports have.
  static constexpr std::uint32_t kMaxRequests = 256;

  struct SendRequest final : Request {
    Result<Progress> test() override { return channel->test(*this); }

    StagedSendChannel* channel = nullptr;
    Stage::Id id = 0;
    const Mr* mr = nullptr;
    std::size_t offset = 0;
    std::size_t length = 0;
    int tag = 0;
    FlowTag flow;
    Request* inner = nullptr;  // while the inner channel has it
    std::size_t size = 0;
    std::vector<MissingRange> missing;
    bool tells_sent = false;
  };

  Result<Progress> test(SendRequest& request);
  void progress(SendRequest* request);
  void hand_over();
  void look(SendRequest& request);

  Context& context_;
  Stage stage_;
  std::vector<SendRequest> requests_;  // by the stage's id
  std::unique_ptr<SendChannel> inner_;
};

}  // namespace clustar::transport::staged
