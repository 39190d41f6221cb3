#include "bench/proxy/communicator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <utility>

#include "bench/proxy/comm_profiler.h"
#include "bench/proxy/links.h"
#include "bench/proxy/nccl_names.h"
#include "bench/proxy/plugin_error.h"
#include "bench/proxy/progress_engine.h"
#include "bench/proxy/service_thread.h"
#include "bench/proxy/tuner_plugin.h"

namespace clustar::bench::proxy {
namespace {

constexpr int kMaxChannels = 64;  // MAXCHANNELS
constexpr int kMaxGroup = 8;      // as many subs as NCCL puts into one shared operation

template <class T>
Result<std::vector<T>> gather(Bootstrap& bootstrap, const T& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  auto all = bootstrap.all_gather(std::as_bytes(std::span(&mine, 1)));
  if (!all) return tl::unexpected(all.error());
  std::vector<T> out(static_cast<std::size_t>(bootstrap.size()));
  std::memcpy(out.data(), all->data(), all->size());
  return out;
}

struct Verdict {
  std::uint32_t failed = 0;
  std::uint32_t code = 0;
  char text[1000] = "";
};

// Every rank says whether its phase worked; the first failure becomes everybody's.
Result<void> agree(Bootstrap& bootstrap, const Result<void>& mine) {
  Verdict verdict;
  if (!mine) {
    verdict.failed = 1;
    verdict.code = static_cast<std::uint32_t>(mine.error().code);
    mine.error().message.copy(verdict.text, sizeof verdict.text - 1);
  }
  auto all = gather(bootstrap, verdict);
  // Without the others' answers our own failure is the better message.
  if (!all) return mine ? tl::unexpected(all.error()) : mine;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const Verdict& other = (*all)[r];
    if (other.failed != 0) {
      return fail(static_cast<ErrorCode>(other.code), fmt::format("rank {}: {}", r, other.text));
    }
  }
  return {};
}

struct Agreement {
  std::int32_t channels;
  std::int32_t protocol;
  std::int32_t grouped;
  std::int32_t max_recvs;
  std::int32_t direct;
};

class RingCommunicator final : public Communicator {
 public:
  RingCommunicator(NetPlugin& plugin, const CommunicatorOptions& options, int rank, int size)
      : plugin_(plugin), options_(options), rank_(rank), size_(size) {}
  ~RingCommunicator() override { static_cast<void>(close()); }

  Result<void> open(Bootstrap& bootstrap);
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int profiler_version() const override { return profiler_ ? profiler_->version() : 0; }
  int tuner_version() const override { return tuner_ ? tuner_->version() : 0; }
  void record_steps(bool on) override { record_steps_ = on; }
  void abort() override;
  Result<void> close() override;

  std::unique_ptr<Pending> all_reduce(void* data, std::size_t count, DataType type, ReduceOp op) override {
    return start({Collective::kAllReduce, data, data, count, type, op, 0}, count);
  }
  std::unique_ptr<Pending> all_reduce_direct(void* data, std::size_t count, DataType type, Missing missing,
                                             void* residual) override {
    return start_direct({data, count, type, missing, residual});
  }
  std::unique_ptr<Pending> reduce_scatter(const void* send, void* recv, std::size_t recv_count, DataType type,
                                          ReduceOp op) override {
    return start({Collective::kReduceScatter, send, recv, recv_count, type, op, 0}, recv_count);
  }
  std::unique_ptr<Pending> all_gather(const void* send, void* recv, std::size_t send_count, DataType type) override {
    return start({Collective::kAllGather, send, recv, send_count, type, ReduceOp::kSum, 0}, send_count);
  }
  std::unique_ptr<Pending> broadcast(void* data, std::size_t count, DataType type, int root) override {
    return start({Collective::kBroadcast, data, data, count, type, ReduceOp::kSum, root}, 0);
  }
  std::unique_ptr<Pending> all_to_all(const void* send, void* recv, std::span<const std::size_t> send_bytes,
                                      std::span<const std::size_t> recv_bytes) override {
    return start_exchange({send, recv, send_bytes, recv_bytes});
  }
  Totals totals() const override { return engine_ ? engine_->totals() : Totals{}; }

 private:
  Result<void> init_plugin();
  Result<void> choose_device();
  Result<void> init_profiler();
  Result<void> init_tuner();
  Result<Protocol> choose_protocol(const CollectiveRequest& request);
  Result<int> agree_on_group(Bootstrap& bootstrap);
  Result<void> connect_ring(Bootstrap& bootstrap, int group);
  Result<void> connect_direct(Bootstrap& bootstrap);
  Result<void> connect_links(Bootstrap& bootstrap, Links& links, std::span<const std::size_t> places);
  std::unique_ptr<Pending> start_direct(const DirectRequest& request);
  Result<void> validate(const DirectRequest& request) const;
  std::unique_ptr<Pending> start_exchange(const ExchangeRequest& request);
  Result<void> validate(const ExchangeRequest& request) const;
  std::unique_ptr<Pending> start(const CollectiveRequest& request, std::size_t copied_if_alone);
  Result<void> validate(const CollectiveRequest& request) const;

  NetPlugin& plugin_;
  CommunicatorOptions options_;
  int rank_;
  int size_;
  int device_ = 0;
  int max_recvs_ = 1;
  bool dma_bufs_ = false;
  bool flush_ = false;
  bool record_steps_ = false;
  bool initialised_ = false;
  void* ctx_ = nullptr;
  std::optional<CommProfiler> profiler_;
  std::unique_ptr<TunerPlugin> tuner_;
  void* tuner_context_ = nullptr;
  std::optional<ServiceThread> service_;
  std::optional<Links> links_;
  std::optional<Links> direct_links_;
  std::unique_ptr<LossReports> plugin_losses_;
  std::optional<ProgressEngine> engine_;
  bool closed_ = false;
};

Result<void> RingCommunicator::init_plugin() {
  if (options_.channels < 1 || options_.channels > kMaxChannels) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} channels are not possible; allowed are 1 to {}", options_.channels, kMaxChannels));
  }
  const int result = plugin_.init(options_.comm_id, options_.traffic_class, &ctx_);
  // NCCL hands finalize to a v11 plugin even when its init failed.
  initialised_ = result == nccl_abi::kSuccess || plugin_.has_finalize();
  if (result != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "init", result));
  if (auto chosen = choose_device(); !chosen) return chosen;
  if (options_.direct && options_.losses == nullptr) {
    auto losses = plugin_loss_reports(plugin_.path());
    if (!losses) return tl::unexpected(losses.error());
    plugin_losses_ = std::move(*losses);
  }
  return init_profiler();
}

// 0: none.
int wanted_version(int option, const NetPlugin& plugin) {
  if (option != 0) return std::max(option, 0);
  return paired_version(plugin.version());
}

// Before listen and connect, as NCCL does it. A profiler whose init fails is left out, which NCCL calls "continue
// without profiler".
Result<void> RingCommunicator::init_profiler() {
  std::unique_ptr<ProfilerPlugin> plugin;
  void* context = nullptr;
  if (const int version = wanted_version(options_.profiler_version, plugin_); version != 0) {
    auto opened = ProfilerPlugin::open(plugin_.path(), version);
    if (!opened) return tl::unexpected(opened.error());
    plugin = std::move(*opened);
  }
  // Each rank is a node of its own: all its transfers cross the network.
  const ProfiledComm comm{options_.comm_id, options_.comm_name, size_, size_, rank_};
  if (plugin && plugin->init(comm, plugin_.logger(), &context) != nccl_abi::kSuccess) plugin.reset();
  profiler_.emplace(std::move(plugin), context, rank_);
  return {};
}

Result<void> RingCommunicator::init_tuner() {
  const int version = wanted_version(options_.tuner_version, plugin_);
  if (version == 0) return {};
  auto opened = TunerPlugin::open(plugin_.path(), version);
  if (!opened) return tl::unexpected(opened.error());
  if (!*opened) return {};
  const auto ranks = static_cast<std::size_t>(size_);
  const int result = (*opened)->init({options_.comm_id, ranks, ranks}, plugin_.logger(), &tuner_context_);
  if (result != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "the tuner's init", result));
  tuner_ = std::move(*opened);
  return {};
}

// All ranks get the same answer, or their kernels wait for each other, here as under NCCL.
Result<Protocol> RingCommunicator::choose_protocol(const CollectiveRequest& request) {
  if (!tuner_) return options_.protocol;
  CostTable costs = offered_costs(options_.protocol);
  int channels = 0;  // a tuner's wish for fewer or more; the rings here are what the user asked for
  const int result = tuner_->get_coll_info(tuner_context_, function_of(request.collective),
                                           collective_bytes(request, size_), costs, &channels);
  if (result != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "the tuner's getCollInfo", result));
  return cheapest_ring(costs, function_name(request.collective));
}

Result<void> RingCommunicator::choose_device() {
  int devices = 0;
  int result = plugin_.devices(&devices);
  if (result != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "devices", result));
  if (devices < 1) return fail(ErrorCode::kUnavailable, "the plugin found no network device on this machine");
  device_ = options_.device < 0 ? rank_ % devices : options_.device;
  if (device_ >= devices) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("net device {} does not exist; the plugin has 0 to {}", device_, devices - 1));
  }
  NetProperties properties;
  result = plugin_.get_properties(device_, &properties);
  if (result != nccl_abi::kSuccess) return tl::unexpected(plugin_error(plugin_, "getProperties", result));
  if ((properties.ptr_support & nccl_abi::kPtrHost) == 0) {
    return fail(ErrorCode::kUnavailable,
                "the plugin's device does not take host memory (ptrSupport lacks NCCL_PTR_HOST)");
  }
  if (properties.device_type != nccl_abi::kDeviceTypeHost) {
    return fail(ErrorCode::kUnavailable,
                "the plugin's device needs GPU code (netDeviceType); only host devices run here");
  }
  if (properties.max_coll_bytes == 0 || properties.max_coll_bytes > nccl_abi::kMaxBytesV9) {
    return fail(ErrorCode::kInternal,
                fmt::format("maxCollBytes is {}; NCCL allows 1 to 2^40", properties.max_coll_bytes));
  }
  constexpr int kGpu = nccl_abi::kPtrCuda | nccl_abi::kPtrDmaBuf;
  if (options_.gpu_memory && (properties.ptr_support & kGpu) == 0) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("the plugin's device takes no GPU memory (ptrSupport {:#x})", properties.ptr_support));
  }
  // NCCL takes no dma-bufs from a plugin without the call (init.cc dmaBufSupported).
  dma_bufs_ = (properties.ptr_support & nccl_abi::kPtrDmaBuf) != 0 && plugin_.has_reg_mr_dma_buf();
  flush_ = options_.force_flush || (options_.gpu_memory && properties.force_flush);
  max_recvs_ = std::max(1, properties.max_recvs);
  return {};
}

Result<int> RingCommunicator::agree_on_group(Bootstrap& bootstrap) {
  const Agreement mine{options_.channels, static_cast<std::int32_t>(options_.protocol), options_.group_channels ? 1 : 0,
                       max_recvs_, options_.direct ? 1 : 0};
  auto all = gather(bootstrap, mine);
  if (!all) return tl::unexpected(all.error());
  int group = options_.group_channels ? kMaxGroup : 1;
  for (std::size_t r = 0; r < all->size(); ++r) {
    const Agreement& other = (*all)[r];
    if (other.channels != mine.channels || other.protocol != mine.protocol || other.grouped != mine.grouped ||
        other.direct != mine.direct) {
      return fail(
          ErrorCode::kInvalidUsage,
          fmt::format("ranks {} and {} differ in channels ({} and {}), protocol ({} and {}), grouping ({} and {}) "
                      "or direct connections ({} and {}); all ranks need the same",
                      rank_, r, mine.channels, other.channels, mine.protocol, other.protocol, mine.grouped,
                      other.grouped, mine.direct, other.direct));
    }
    group = std::min(group, other.max_recvs);
  }
  return group;
}

// `places`: by link, which of the handles of the rank it connects to is for this one.
Result<void> RingCommunicator::connect_links(Bootstrap& bootstrap, Links& links, std::span<const std::size_t> places) {
  auto listening = service_->run([&] { return links.listen(); });
  const Result<void> listened = listening ? Result<void>{} : tl::unexpected(listening.error());
  if (auto agreed = agree(bootstrap, listened); !agreed) return agreed;

  auto handles = bootstrap.all_gather(std::as_bytes(std::span(*listening)));
  if (!handles) return tl::unexpected(handles.error());
  std::vector<Handle> next_handles(listening->size());
  for (std::size_t i = 0; i < next_handles.size(); ++i) {
    const std::size_t at = static_cast<std::size_t>(links.links()[i].to) * next_handles.size() + places[i];
    std::memcpy(&next_handles[i], handles->data() + at * sizeof(Handle), sizeof(Handle));
  }
  const auto deadline = std::chrono::steady_clock::now() + options_.connect_timeout;
  return agree(bootstrap, service_->run([&] { return links.connect(next_handles, deadline); }));
}

Result<void> RingCommunicator::connect_ring(Bootstrap& bootstrap, int group) {
  links_.emplace(ring_links(plugin_, ctx_, device_, rank_, size_, options_.channels, group));
  if (options_.gpu_memory) links_->use_gpu_memory(dma_bufs_);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < links_->links().size(); ++i) places.push_back(i);
  return connect_links(bootstrap, *links_, places);
}

Result<void> RingCommunicator::connect_direct(Bootstrap& bootstrap) {
  direct_links_.emplace(direct_links(plugin_, ctx_, device_, rank_, size_));
  if (options_.gpu_memory) direct_links_->use_gpu_memory(dma_bufs_);
  std::vector<std::size_t> places;
  for (const Link& link : direct_links_->links()) {
    places.push_back(static_cast<std::size_t>(rank_ < link.to ? rank_ : rank_ - 1));
  }
  return connect_links(bootstrap, *direct_links_, places);
}

Result<void> RingCommunicator::open(Bootstrap& bootstrap) {
  if (auto agreed = agree(bootstrap, init_plugin()); !agreed) return agreed;
  auto group = agree_on_group(bootstrap);
  if (!group) return tl::unexpected(group.error());
  if (size_ == 1) return init_tuner();
  service_.emplace();
  if (auto connected = connect_ring(bootstrap, *group); !connected) return connected;
  if (options_.direct) {
    if (auto connected = connect_direct(bootstrap); !connected) return connected;
  }
  if (auto agreed = agree(bootstrap, init_tuner()); !agreed) return agreed;
  engine_.emplace(plugin_, ctx_, links_->links(), direct_links_ ? direct_links_->links() : std::span<Link>{},
                  ProgressEngine::Config{.rank = rank_,
                                         .size = size_,
                                         .channels = options_.channels,
                                         .protocol = options_.protocol,
                                         .flush = flush_,
                                         .profiler = &*profiler_,
                                         .comm_id = options_.comm_id,
                                         .losses = plugin_losses_ ? plugin_losses_.get() : options_.losses,
                                         .stall_timeout = options_.stall_timeout});
  return {};
}

void RingCommunicator::abort() {
  if (engine_) engine_->abort();
}

// NCCL's order: the progress thread first, then the connections on the service thread, then the contexts of tuner,
// profiler and net plugin (init.cc commCleanup, commFree).
Result<void> RingCommunicator::close() {
  if (std::exchange(closed_, true)) return {};
  Result<void> outcome;
  if (engine_) engine_->stop();
  for (std::optional<Links>* links : {&links_, &direct_links_}) {
    if (!*links) continue;
    if (auto closed = service_->run([&] { return (*links)->close(); }); !closed && outcome) outcome = closed;
  }
  service_.reset();
  const auto note = [&](const char* call, int result) {
    if (result != nccl_abi::kSuccess && outcome) outcome = tl::unexpected(plugin_error(plugin_, call, result));
  };
  if (tuner_) note("the tuner's finalize", tuner_->finalize(tuner_context_));
  if (profiler_) note("the profiler's finalize", profiler_->finalize());
  if (initialised_) note("finalize", plugin_.finalize(ctx_));
  return outcome;
}

Result<void> RingCommunicator::validate(const CollectiveRequest& request) const {
  const std::size_t limit = std::numeric_limits<std::ptrdiff_t>::max() / element_bytes(request.type);
  if (request.count > limit / static_cast<std::size_t>(size_)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("{} elements do not fit an address space", request.count));
  }
  if (request.count > 0 && (request.input == nullptr || request.output == nullptr)) {
    return fail(ErrorCode::kInvalidArgument, "a collective needs buffers; one is null");
  }
  if (request.root < 0 || request.root >= size_) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("root {} is not a rank of 0 to {}", request.root, size_ - 1));
  }
  if (closed_) return fail(ErrorCode::kInvalidUsage, "the communicator is closed");
  return {};
}

Result<void> RingCommunicator::validate(const DirectRequest& request) const {
  if (!options_.direct) {
    return fail(ErrorCode::kInvalidUsage, "a direct all-reduce needs CommunicatorOptions::direct on all ranks");
  }
  if (request.type == DataType::kInt32 || request.type == DataType::kUint8) {
    return fail(ErrorCode::kInvalidArgument,
                "a direct all-reduce sums floats; allowed are kFloat16, kBfloat16, kFloat32 and kFloat64");
  }
  if (request.residual != nullptr && request.missing != Missing::kResidual) {
    return fail(ErrorCode::kInvalidArgument, "a residual needs Missing::kResidual; pass null, or that");
  }
  return validate(CollectiveRequest{Collective::kAllReduce, request.data, request.data, request.count, request.type});
}

std::unique_ptr<Pending> RingCommunicator::start_direct(const DirectRequest& request) {
  auto valid = validate(request);
  if (valid && request.count > 0 && engine_) {
    const std::size_t share = block_share(size_, request.count, element_bytes(request.type));
    const auto protocol = choose_protocol({Collective::kAllGather, nullptr, nullptr, share, request.type});
    if (protocol) return std::make_unique<PendingCollective>(engine_->submit_direct(request, *protocol, record_steps_));
    valid = tl::unexpected(protocol.error());
  }
  auto completion = std::make_shared<Completion>();
  if (valid && request.residual != nullptr) {
    std::memset(request.residual, 0, request.count * element_bytes(request.type));
  }
  completion->finish(valid ? Result<CollectiveStats>(CollectiveStats{}) : tl::unexpected(valid.error()));
  return std::make_unique<PendingCollective>(std::move(completion));
}

Result<void> RingCommunicator::validate(const ExchangeRequest& request) const {
  if (!options_.direct) {
    return fail(ErrorCode::kInvalidUsage, "an all-to-all needs CommunicatorOptions::direct on all ranks");
  }
  const auto ranks = static_cast<std::size_t>(size_);
  const auto own = static_cast<std::size_t>(rank_);
  if (request.send_bytes.size() != ranks || request.recv_bytes.size() != ranks) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("an all-to-all of {} blocks into {}; allowed: one per rank, {}", request.send_bytes.size(),
                            request.recv_bytes.size(), ranks));
  }
  if (request.send_bytes[own] != request.recv_bytes[own]) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("an all-to-all in which rank {} sends itself {} bytes and expects {}; allowed: the same",
                            rank_, request.send_bytes[own], request.recv_bytes[own]));
  }
  const auto lacks = [](const void* memory, std::span<const std::size_t> bytes) {
    return memory == nullptr && std::any_of(bytes.begin(), bytes.end(), [](std::size_t one) { return one > 0; });
  };
  if (lacks(request.send, request.send_bytes) || lacks(request.recv, request.recv_bytes)) {
    return fail(ErrorCode::kInvalidArgument, "a collective needs buffers; one is null");
  }
  if (closed_) return fail(ErrorCode::kInvalidUsage, "the communicator is closed");
  return {};
}

std::unique_ptr<Pending> RingCommunicator::start_exchange(const ExchangeRequest& request) {
  const auto valid = validate(request);
  if (valid && engine_) {
    return std::make_unique<PendingCollective>(engine_->submit_exchange(request, options_.protocol, record_steps_));
  }
  auto completion = std::make_shared<Completion>();
  if (valid && request.send_bytes[0] > 0) std::memmove(request.recv, request.send, request.send_bytes[0]);
  completion->finish(valid ? Result<CollectiveStats>(CollectiveStats{}) : tl::unexpected(valid.error()));
  return std::make_unique<PendingCollective>(std::move(completion));
}

std::unique_ptr<Pending> RingCommunicator::start(const CollectiveRequest& request, std::size_t copied_if_alone) {
  auto valid = validate(request);
  if (valid && request.count > 0 && engine_) {
    const auto protocol = choose_protocol(request);
    if (protocol) return std::make_unique<PendingCollective>(engine_->submit(request, *protocol, record_steps_));
    valid = tl::unexpected(protocol.error());
  }
  auto completion = std::make_shared<Completion>();
  if (!valid) {
    completion->finish(tl::unexpected(valid.error()));
  } else {
    if (copied_if_alone > 0 && size_ == 1 && request.input != request.output) {
      std::memmove(request.output, request.input, copied_if_alone * element_bytes(request.type));
    }
    completion->finish(CollectiveStats{});
  }
  return std::make_unique<PendingCollective>(std::move(completion));
}

}  // namespace

Result<std::unique_ptr<Communicator>> Communicator::create(NetPlugin& plugin, Bootstrap& bootstrap,
                                                           const CommunicatorOptions& options) {
  auto communicator = std::make_unique<RingCommunicator>(plugin, options, bootstrap.rank(), bootstrap.size());
  if (auto opened = communicator->open(bootstrap); !opened) return tl::unexpected(opened.error());
  return std::unique_ptr<Communicator>(std::move(communicator));
}

}  // namespace clustar::bench::proxy
