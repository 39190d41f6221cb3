// The all-reduces of bench/proxy, ring or all-to-all, on host memory: gradients are sent and received where they lie.
#pragma once

#include <memory>

#include "bench/proxy/communicator.h"
#include "bench/trainer/collective.h"
#include "bench/trainer/exchange.h"

namespace clustar::bench::trainer {

class ProxyCollective final : public Collective {
 public:
  // AllReduce::kAllToAll needs a communicator that is `direct`.
  ProxyCollective(std::unique_ptr<proxy::Communicator> communicator, const ExchangeOptions& exchange);

  int size() const override { return communicator_->size(); }
  Buffer map(void* host, std::size_t) override { return {static_cast<std::byte*>(host)}; }
  // There is no device here, so an event or a buffer of one is a mistake of the caller.
  std::unique_ptr<Pending> all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                      float* lost) override;
  std::unique_ptr<Pending> all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) override;
  bool tells_lost() const override;
  std::unique_ptr<Pending> reduce_scatter(Buffer values, std::size_t count, Precision type, Event ready) override;
  // Needs a communicator that is `direct`.
  std::unique_ptr<Pending> all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes) override;
  void abort() override { communicator_->abort(); }
  Result<void> close() override { return communicator_->close(); }
  std::optional<Traffic> traffic() const override;

  const proxy::Communicator& communicator() const { return *communicator_; }

 private:
  std::unique_ptr<proxy::Communicator> communicator_;
  ExchangeOptions exchange_;
};

}  // namespace clustar::bench::trainer
