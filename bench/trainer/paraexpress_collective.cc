#include "bench/trainer/paraexpress_collective.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "bench/trainer/failed_pending.h"
#include "bench/trainer/paraexpress_exchange.h"

namespace clustar::bench::trainer {
namespace {

constexpr Duration kForever = std::chrono::hours(24 * 365);

class ParaexpressPending final : public Pending {
 public:
  explicit ParaexpressPending(std::unique_ptr<paraexpress::Operation> operation) : operation_(std::move(operation)) {}
  Result<CollectiveOutcome> wait() override {
    const auto seconds = operation_->wait();
    if (!seconds) return tl::unexpected(seconds.error());
    return CollectiveOutcome{.seconds = *seconds};
  }
  Result<void> hold_back(Stream) override {
    const auto seconds = operation_->wait();
    return seconds ? Result<void>() : tl::unexpected(seconds.error());
  }

 private:
  std::unique_ptr<paraexpress::Operation> operation_;
};

paraexpress::DataType paraexpress_type(Precision type) {
  switch (type) {
    case Precision::kFloat32: return paraexpress::DataType::kFloat32;
    case Precision::kBfloat16: return paraexpress::DataType::kBfloat16;
    case Precision::kFloat16: return paraexpress::DataType::kFloat16;
  }
  return paraexpress::DataType::kFloat32;
}

Error not_in_host_memory() {
  return {ErrorCode::kInvalidArgument,
          "ParaExpress's collectives work on host memory; give a buffer that map() made and no event"};
}

}  // namespace

ParaexpressCollective::ParaexpressCollective(proxy::Bootstrap& bootstrap)
    : rank_(bootstrap.rank()), size_(bootstrap.size()) {}

Result<std::unique_ptr<ParaexpressCollective>> ParaexpressCollective::create(proxy::Bootstrap& bootstrap,
                                                                             const Options& options) {
  std::unique_ptr<ParaexpressCollective> made(new ParaexpressCollective(bootstrap));
  auto own = paraexpress::OwnTransport::choose(made->rank_);
  if (!own) return tl::unexpected(own.error());
  made->own_ = std::move(*own);
  const auto ready = made->connect(bootstrap, options);
  if (ready) return made;
  std::string message = ready.error().message;
  for (const std::string& warning : made->take_warnings()) message += "\n  warned: " + warning;
  return fail(ready.error().code, std::move(message));
}

Result<void> ParaexpressCollective::connect(proxy::Bootstrap& bootstrap, const Options& options) {
  paraexpress::EngineOptions engine;
  engine.rank = static_cast<paraexpress::Member>(rank_);
  engine.ranks = static_cast<std::uint32_t>(size_);
  engine.regions = options.plan.regions;
  engine.plan = plan_of(options.plan.plan);
  engine.helpers = static_cast<std::uint32_t>(options.plan.helpers);
  engine.device = own_->device();
  engine.stall = options.stall_timeout.count() > 0 ? Duration(options.stall_timeout) : kForever;
  engine.channel.comm_id = options.comm_id;
  engine.channel.rank = rank_;
  engine.channel.job = own_->job();
  // Helpers meet the ranks where the ranks' own affairs are not their business.
  std::unique_ptr<proxy::Bootstrap> with_helpers;
  if (options.plan.helpers > 0) {
    auto joined = proxy::Bootstrap::join(
        {.rank = rank_, .size = size_ + options.plan.helpers, .root = options.plan.helpers_root, .required = size_});
    if (!joined) {
      return fail(joined.error().code,
                  fmt::format("{} (ranks from {} on are helpers: start `clustar aggregator` for each)",
                              joined.error().message, size_));
    }
    with_helpers = std::move(*joined);
  }
  proxy::Bootstrap& all = with_helpers ? *with_helpers : bootstrap;
  auto made = paraexpress::Engine::create(
      own_->transport(), [&](std::span<const std::byte> mine) { return all.all_gather(mine); }, engine);
  if (!made) return tl::unexpected(made.error());
  engine_ = std::move(*made);
  if (rank_ == 0 && engine_->helpers() < engine.helpers) {
    warning_ = fmt::format("{} of {} helpers did not come, or were lost while all connected: it goes on without them",
                           engine.helpers - engine_->helpers(), engine.helpers);
  }
  measuring_ = engine_->traffic();
  stall_ = engine.stall;
  return options.exchanges ? connect_exchanges(bootstrap) : Result<void>();
}

Result<void> ParaexpressCollective::connect_exchanges(proxy::Bootstrap& bootstrap) {
  paraexpress::CommunicatorOptions options;
  options.rank = static_cast<paraexpress::Member>(rank_);
  options.ranks = static_cast<std::uint32_t>(size_);
  options.device = own_->device();
  options.job = own_->job();
  auto made = paraexpress::Communicator::create(
      own_->transport(), [&](std::span<const std::byte> mine) { return bootstrap.all_gather(mine); }, options);
  if (!made) return tl::unexpected(made.error());
  exchanges_ = std::move(*made);
  return {};
}

Buffer ParaexpressCollective::map(void* host, std::size_t bytes) {
  if (auto ok = engine_->add_memory(host, bytes); !ok && !error_) {
    error_ = Error{ok.error().code, fmt::format("{} bytes cannot be registered: {}", bytes, ok.error().message)};
  }
  return {static_cast<std::byte*>(host)};
}

std::unique_ptr<Pending> ParaexpressCollective::all_reduce(Buffer values, std::size_t count, Precision type,
                                                           Event ready, float*) {
  if (!values.on_host_alone() || ready.handle != nullptr) return failed_pending(not_in_host_memory());
  if (error_) return failed_pending(*error_);
  return std::make_unique<ParaexpressPending>(
      engine_->all_reduce(values.host, count, paraexpress_type(type), paraexpress::Reduction::kSum));
}

std::unique_ptr<Pending> ParaexpressCollective::all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) {
  const bool in_memory = own.on_host_alone() && all.on_host_alone();
  if (!in_memory || ready.handle != nullptr) return failed_pending(not_in_host_memory());
  if (error_) return failed_pending(*error_);
  std::byte* const place = all.host + bytes * static_cast<std::size_t>(rank_);
  if (own.host != place) std::memcpy(place, own.host, bytes);
  return std::make_unique<ParaexpressPending>(engine_->all_gather(all.host, bytes));
}

std::unique_ptr<Pending> ParaexpressCollective::reduce_scatter(Buffer values, std::size_t count, Precision type,
                                                               Event ready) {
  if (!values.on_host_alone() || ready.handle != nullptr) return failed_pending(not_in_host_memory());
  if (error_) return failed_pending(*error_);
  return std::make_unique<ParaexpressPending>(
      engine_->reduce_scatter(values.host, count, paraexpress_type(type), paraexpress::Reduction::kSum));
}

std::unique_ptr<Pending> ParaexpressCollective::all_to_all(Buffer send, Buffer recv, const BlockSizes& bytes) {
  if (!send.on_host_alone() || !recv.on_host_alone()) return failed_pending(not_in_host_memory());
  if (exchanges_ == nullptr) return Collective::all_to_all(send, recv, bytes);
  return start_exchange(*exchanges_, static_cast<paraexpress::Member>(rank_), send.host, recv.host, bytes, stall_);
}

std::vector<std::string> ParaexpressCollective::take_warnings() {
  std::vector<std::string> all = own_->take_warnings();
  if (auto one = std::exchange(warning_, std::nullopt)) all.push_back(std::move(*one));
  return all;
}

void ParaexpressCollective::abort() {
  const std::string why = fmt::format("rank {} aborted its collectives", rank_);
  engine_->abort(why);
  if (exchanges_ != nullptr) exchanges_->abort(why);
}

Result<void> ParaexpressCollective::close() {
  if (std::exchange(closed_, true)) return {};
  if (exchanges_ != nullptr) exchanges_->close();
  if (engine_ != nullptr) engine_->close();
  return {};
}

std::optional<Traffic> ParaexpressCollective::traffic() const {
  const paraexpress::EngineTraffic sum = engine_->traffic();
  return Traffic{.bytes_sent = sum.bytes_sent - measuring_.bytes_sent,
                 .bytes_received = sum.bytes_received - measuring_.bytes_received,
                 .messages_sent = sum.messages_sent - measuring_.messages_sent,
                 .messages_received = sum.messages_received - measuring_.messages_received};
}

}  // namespace clustar::bench::trainer
