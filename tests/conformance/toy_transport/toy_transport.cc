#include "tests/conformance/toy_transport/toy_transport.h"

#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "tests/conformance/toy_transport/recv_channel.h"
#include "tests/conformance/toy_transport/send_channel.h"
#include "transport/api/settings.h"
#include "transport/api/shared_config.h"
#include "transport/base/bytes.h"

namespace clustar::transport::toy {
namespace {

constexpr std::uint64_t kMagic = 0x746f79207472616e;

// Where the listeners of this process are found: by the number in a handle, those who wait to be accepted.
struct Board {
  std::mutex mutex;
  std::uint64_t next = 1;
  std::map<std::uint64_t, std::deque<std::shared_ptr<Pipe>>> waiting;
};
Board& board() {
  static Board one;
  return one;
}

class ToyListener final : public Listener {
 public:
  ToyListener(const ChannelOptions& options, TrafficBook& traffic)
      : traffic_(traffic), traffic_class_(options.traffic_class) {
    const std::lock_guard lock(board().mutex);
    number_ = board().next++;
    board().waiting[number_] = {};
    WireWriter writer{std::span<std::byte, std::tuple_size_v<Handle>>(handle_)};
    writer.store<0>(kMagic);
    writer.store<8>(number_);
    SharedConfig::of(options).serialize_to(std::span(handle_).subspan<16, SharedConfig::kSize>());
  }
  ~ToyListener() override {
    const std::lock_guard lock(board().mutex);
    for (const auto& pipe : board().waiting[number_]) {  // connected, and never accepted
      const std::lock_guard theirs(pipe->mutex);
      pipe->receiver_gone = true;
    }
    board().waiting.erase(number_);
  }
  const Handle& handle() const override { return handle_; }
  Result<std::unique_ptr<RecvChannel>> poll_accept() override {
    const std::lock_guard lock(board().mutex);
    auto& waiting = board().waiting[number_];
    if (waiting.empty()) return nullptr;
    auto pipe = std::move(waiting.front());
    waiting.pop_front();
    return std::make_unique<ToyRecvChannel>(std::move(pipe), traffic_, traffic_class_);
  }

 private:
  TrafficBook& traffic_;
  const int traffic_class_;
  std::uint64_t number_ = 0;
  Handle handle_{};
};

class ToyConnect final : public PendingConnect {
 public:
  ToyConnect(SendEngine& engine, TrafficBook& traffic, std::uint64_t number, int rank_there,
             const ChannelOptions& options)
      : engine_(engine), traffic_(traffic), number_(number), rank_there_(rank_there), options_(options) {}
  Result<std::unique_ptr<SendChannel>> poll() override {
    if (std::exchange(done_, true)) return nullptr;
    const std::lock_guard lock(board().mutex);
    const auto listener = board().waiting.find(number_);
    if (listener == board().waiting.end()) {
      done_ = false;
      return fail(ErrorCode::kRemote, "toy: the listener is gone");
    }
    listener->second.push_back(std::make_shared<Pipe>());
    const auto& pipe = listener->second.back();
    pipe->dialled_by = options_.rank;
    return std::make_unique<ToySendChannel>(engine_, pipe, SendQueue::ConnectionFacts{1, options_.job},
                                            traffic_.open(options_.traffic_class, "here", rank_there_), rank_there_);
  }

 private:
  SendEngine& engine_;
  TrafficBook& traffic_;
  const std::uint64_t number_;
  const int rank_there_;
  const ChannelOptions options_;
  bool done_ = false;
};

}  // namespace

ToyTransport::ToyTransport(const TransportContext& context)
    : engine_(context.clock, policies_of(context)->make({"toy0", 0}),
              {.ahead = std::chrono::microseconds(context.config.get<SendOrderSettings>().ahead_us)}) {
  device_.name = "toy0";
  device_.speed_mbps = 1000;
  device_.max_channels = 1024;
  device_.max_recv_parts = kMaxRecvParts;
  device_.memory_kinds = gdr::kHostOnly;
}

Result<std::unique_ptr<Transport>> ToyTransport::create(const TransportContext& context) {
  return std::unique_ptr<Transport>(new ToyTransport(context));
}

Result<std::unique_ptr<Listener>> ToyTransport::listen(int device, const ChannelOptions& options) {
  if (device != 0) return fail(ErrorCode::kInvalidArgument, "toy: only device 0 exists");
  return std::make_unique<ToyListener>(options, traffic_);
}

Result<std::unique_ptr<PendingConnect>> ToyTransport::connect(int device, const Handle& handle,
                                                              const ChannelOptions& options) {
  const WireReader reader{std::span<const std::byte, std::tuple_size_v<Handle>>(handle)};
  const auto there = SharedConfig::parse(std::span(handle).subspan<16, SharedConfig::kSize>());
  if (device != 0 || reader.load<std::uint64_t, 0>() != kMagic || !there) {
    return fail(ErrorCode::kInvalidArgument, "toy: not a device, or not a handle, of this transport");
  }
  if (const auto differs = difference(SharedConfig::of(options), "here", *there, "there")) {
    return fail(ErrorCode::kInvalidArgument, "toy: " + *differs);
  }
  return std::make_unique<ToyConnect>(engine_, traffic_, reader.load<std::uint64_t, 8>(), there->rank, options);
}

Counters ToyTransport::counters() const {
  Counters counters{.transport = "toy", .note = "memory of this process"};
  DeviceCounters& device = counters.devices.emplace_back(DeviceCounters{.device = device_.name});
  traffic_.fill(device);
  device.queued_bytes = engine_.queued_bytes();
  return counters;
}

}  // namespace clustar::transport::toy
