#include "bench/trainer/proxy_collective.h"

#include <utility>

#include "bench/trainer/failed_pending.h"

namespace clustar::bench::trainer {
namespace {

class ProxyPending final : public Pending {
 public:
  explicit ProxyPending(std::unique_ptr<proxy::Pending> pending) : pending_(std::move(pending)) {}
  Result<CollectiveOutcome> wait() override {
    const auto stats = pending_->wait();
    if (!stats) return tl::unexpected(stats.error());
    return CollectiveOutcome{stats->seconds, stats->missing_contributions, stats->expected_contributions};
  }
  Result<void> hold_back(Stream) override {
    const auto stats = pending_->wait();
    return stats ? Result<void>() : tl::unexpected(stats.error());
  }

 private:
  std::unique_ptr<proxy::Pending> pending_;
};

proxy::DataType proxy_type(Precision type) {
  switch (type) {
    case Precision::kFloat32: return proxy::DataType::kFloat32;
    case Precision::kBfloat16: return proxy::DataType::kBfloat16;
    case Precision::kFloat16: return proxy::DataType::kFloat16;
  }
  return proxy::DataType::kFloat32;
}

std::unique_ptr<Pending> refused() {
  return failed_pending({ErrorCode::kInvalidArgument,
                         "the proxy's collectives work on host memory; give a buffer that map() made and no event"});
}

}  // namespace

ProxyCollective::ProxyCollective(std::unique_ptr<proxy::Communicator> communicator, const ExchangeOptions& exchange)
    : communicator_(std::move(communicator)), exchange_(exchange) {}

bool ProxyCollective::tells_lost() const {
  return exchange_.all_reduce == AllReduce::kAllToAll && exchange_.missing == proxy::Missing::kResidual;
}

std::unique_ptr<Pending> ProxyCollective::all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                                     float* lost) {
  if (!values.on_host_alone() || ready.handle != nullptr) return refused();
  if (lost != nullptr && type != Precision::kFloat32) {
    return failed_pending({ErrorCode::kInvalidArgument, "what was lost is told of float32 only"});
  }
  if (exchange_.all_reduce == AllReduce::kRing) {
    return std::make_unique<ProxyPending>(
        communicator_->all_reduce(values.host, count, proxy_type(type), proxy::ReduceOp::kSum));
  }
  return std::make_unique<ProxyPending>(
      communicator_->all_reduce_direct(values.host, count, proxy_type(type), exchange_.missing, lost));
}

std::unique_ptr<Pending> ProxyCollective::all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) {
  if (!own.on_host_alone() || !all.on_host_alone() || ready.handle != nullptr) return refused();
  return std::make_unique<ProxyPending>(communicator_->all_gather(own.host, all.host, bytes, proxy::DataType::kUint8));
}

std::unique_ptr<Pending> ProxyCollective::reduce_scatter(Buffer values, std::size_t count, Precision type,
                                                         Event ready) {
  if (!values.on_host_alone() || ready.handle != nullptr) return refused();
  std::byte* const own = values.host + static_cast<std::size_t>(communicator_->rank()) * count * element_bytes(type);
  return std::make_unique<ProxyPending>(
      communicator_->reduce_scatter(values.host, own, count, proxy_type(type), proxy::ReduceOp::kSum));
}

std::unique_ptr<Pending> ProxyCollective::all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes) {
  if (!send.on_host_alone() || !recv.on_host_alone()) return refused();
  return std::make_unique<ProxyPending>(communicator_->all_to_all(send.host, recv.host, bytes.send, bytes.recv));
}

std::optional<Traffic> ProxyCollective::traffic() const {
  const auto totals = communicator_->totals();
  return Traffic{totals.bytes_sent,        totals.bytes_received, totals.messages_sent,
                 totals.messages_received, totals.send_retries,   totals.idle_yields};
}

}  // namespace clustar::bench::trainer
