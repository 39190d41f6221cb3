#include "bench/trainer/tolerant_collective.h"

#include <utility>

#include "bench/trainer/failed_pending.h"

namespace clustar::bench::trainer {
namespace {

namespace tolerant = paraexpress::tolerant;

constexpr Duration kForever = std::chrono::hours(24 * 365);

class TolerantPending final : public Pending {
 public:
  explicit TolerantPending(std::unique_ptr<tolerant::Round> round) : round_(std::move(round)) {}
  Result<CollectiveOutcome> wait() override {
    const auto outcome = round_->wait();
    if (!outcome) return tl::unexpected(outcome.error());
    return CollectiveOutcome{.seconds = std::chrono::duration<double>(outcome->took).count(),
                             .missing_contributions = outcome->kept,
                             .expected_contributions = outcome->given};
  }
  Result<void> hold_back(Stream) override {
    const auto outcome = round_->wait();
    return outcome ? Result<void>() : tl::unexpected(outcome.error());
  }

 private:
  std::unique_ptr<tolerant::Round> round_;
};

}  // namespace

Result<std::unique_ptr<TolerantCollective>> TolerantCollective::create(proxy::Bootstrap& bootstrap,
                                                                       const Options& options) {
  std::unique_ptr<TolerantCollective> made(new TolerantCollective(bootstrap));
  auto own = paraexpress::OwnTransport::choose(made->rank_);
  if (!own) return tl::unexpected(own.error());
  made->own_ = std::move(*own);
  tolerant::GroupOptions group;
  group.rank = static_cast<paraexpress::Member>(made->rank_);
  group.ranks = static_cast<std::uint32_t>(made->size_);
  group.buckets = options.buckets;
  group.tolerance = options.tolerance;
  group.device = made->own_->device();
  group.stall = options.stall_timeout.count() > 0 ? Duration(options.stall_timeout) : kForever;
  group.channel.comm_id = options.comm_id;
  group.channel.job = made->own_->job();
  auto ready = tolerant::Group::create(
      made->own_->transport(), [&](std::span<const std::byte> mine) { return bootstrap.all_gather(mine); }, group);
  if (ready) {
    made->group_ = std::move(*ready);
    return made;
  }
  std::string message = ready.error().message;
  for (const std::string& warning : made->take_warnings()) message += "\n  warned: " + warning;
  return fail(ready.error().code, std::move(message));
}

bool TolerantCollective::begin_step() {
  gives_ = group_->should_compute();
  return gives_;
}

std::unique_ptr<Pending> TolerantCollective::all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                                        float*) {
  if (type != Precision::kFloat32) return sums_float32_only("tolerant collectives");
  if (!values.on_host_alone() || ready.handle != nullptr) {
    return failed_pending({ErrorCode::kInvalidArgument,
                           "tolerant collectives work on host memory; give a buffer that map() made and no event"});
  }
  const std::uint32_t bucket = buckets_.emplace(values.host, static_cast<std::uint32_t>(buckets_.size())).first->second;
  return std::make_unique<TolerantPending>(
      group_->all_reduce(bucket, values.host, count, paraexpress::DataType::kFloat32, gives_));
}

std::unique_ptr<Pending> TolerantCollective::all_gather(Buffer, Buffer, std::size_t, Event) {
  return failed_pending({ErrorCode::kUnavailable, "tolerant collectives only sum; allowed: all_reduce"});
}

void TolerantCollective::abort() { group_->abort("its training failed"); }

Result<void> TolerantCollective::close() {
  if (group_ != nullptr) group_->close();
  return {};
}

std::optional<Traffic> TolerantCollective::traffic() const {
  const paraexpress::EngineTraffic sum = group_->traffic();
  return Traffic{.bytes_sent = sum.bytes_sent,
                 .bytes_received = sum.bytes_received,
                 .messages_sent = sum.messages_sent,
                 .messages_received = sum.messages_received};
}

}  // namespace clustar::bench::trainer
