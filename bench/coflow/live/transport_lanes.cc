#include "bench/coflow/live/transport_lanes.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <iostream>
#include <map>
#include <string>
#include <utility>

#include "coflow/enforce/host_policies.h"
#include "nccl_plugin/settings/all_settings.h"
#include "transport/api/settings.h"
#include "transport/base/system_clock.h"
#include "transport/net/settings.h"
#include "transport/registry.h"

namespace clustar::bench::coflow::live {
namespace {

constexpr std::size_t kMessage = 128 * 1024;
constexpr std::size_t kPosted = 8;  // messages of a lane at once
constexpr int kTag = 0;
constexpr std::uint8_t kAllReduce = 4;  // ncclFunc_t: jobs' phases are alike in that

struct SendLane {
  std::unique_ptr<transport::PendingConnect> pending;
  std::unique_ptr<transport::SendChannel> channel;
  std::unique_ptr<transport::Mr> memory;  // closed before its channel
  std::deque<FlowToSend> flows;           // of the first what is left to post
  std::deque<transport::Request*> posted;
};

struct ReceiveLane {
  struct Flow {
    std::uint64_t to_post = 0, to_come = 0;  // bytes
  };
  std::unique_ptr<transport::Listener> listener;
  std::unique_ptr<transport::RecvChannel> channel;
  std::unique_ptr<transport::Mr> memory;
  std::deque<Flow> flows;
  std::deque<transport::Request*> posted;
};

class TransportLanes final : public Lanes {
 public:
  Result<void> choose() {
    auto config = load_settings();
    if (!config) return tl::unexpected(config.error());
    const auto order = config->get<SendOrderSettings>();
    const Log log = warnings();
    auto policies = clustar::coflow::enforce::host_policies(order, log);
    if (!policies) return tl::unexpected(policies.error());
    auto selected = transport::select_transport({*config, clock_, log, std::move(*policies)});
    if (!selected) return tl::unexpected(selected.error());
    selection_ = std::move(*selected);
    constexpr double kAheadBits = 16 * 1024 * 8;
    constexpr Duration kLongest = std::chrono::milliseconds(2);
    const int mbps = std::max(config->get<NetworkSettings>().line_mbps, 1);
    pause_ = std::min(kLongest, Duration(static_cast<Duration::rep>(kAheadBits / mbps * 1e3 / 2)));
    options_.job = static_cast<std::uint32_t>(order.job);
    return {};
  }

  Result<LaneHandle> listen(LaneId lane) override {
    auto listener = selection_.transport->listen(0, options_);
    if (!listener) return tl::unexpected(listener.error());
    LaneHandle handle{};
    std::ranges::copy((*listener)->handle(), handle.begin());
    receiving_[lane].listener = std::move(*listener);
    return handle;
  }

  Result<void> connect(LaneId lane, const LaneHandle& handle) override {
    transport::Handle bare;
    std::copy_n(handle.begin(), bare.size(), bare.begin());
    auto pending = selection_.transport->connect(0, bare, options_);
    if (!pending) return tl::unexpected(pending.error());
    sending_[lane].pending = std::move(*pending);
    return {};
  }

  Result<bool> open() override {
    const auto memory = gdr::MemoryRef::host(memory_.data(), memory_.size());
    const auto sends = open_all(sending_, &SendLane::pending, &transport::PendingConnect::poll, memory);
    if (!sends) return sends;
    const auto receives = open_all(receiving_, &ReceiveLane::listener, &transport::Listener::poll_accept, memory);
    if (!receives) return receives;
    const bool all = *sends && *receives;
    plays_->store(all);
    return all;
  }

  void send(LaneId id, const FlowToSend& flow) override {
    sending_.at(id).flows.push_back(flow);
    activate(sends_, id);
  }

  void receive(LaneId id, std::uint64_t bytes) override {
    receiving_.at(id).flows.push_back({bytes, bytes});
    activate(receives_, id);
  }

  Result<void> move(std::vector<LaneId>& arrived) override {
    moved_ = false;
    for (std::size_t i = 0; i < receives_.size();) {
      ReceiveLane& lane = receiving_.at(receives_[i]);
      if (const auto ok = take_in(lane, receives_[i], arrived); !ok) return ok;
      if (lane.flows.empty()) {
        receives_[i] = receives_.back();
        receives_.pop_back();
      } else {
        ++i;
      }
    }
    for (std::size_t i = 0; i < sends_.size();) {
      SendLane& lane = sending_.at(sends_[i]);
      if (const auto ok = push_out(lane); !ok) return ok;
      if (lane.flows.empty() && lane.posted.empty()) {
        sends_[i] = sends_.back();
        sends_.pop_back();
      } else {
        ++i;
      }
    }
    return {};
  }

  // A transport has nothing to wait for: one has to ask, as NCCL's proxy does. So many agents share few processors that
  // they sleep in between, for half of the time in which the line empties what is ahead of it.
  void wait(int wake, Duration at_most) override {
    const bool busy = !sends_.empty() || !receives_.empty();
    if (busy && moved_) return;
    const Duration pause = busy ? std::min(at_most, pause_) : at_most;
    pollfd control{wake, POLLIN, 0};
    const timespec time{pause / std::chrono::seconds(1), (pause % std::chrono::seconds(1)).count()};
    (void)ppoll(&control, 1, &time, nullptr);
  }

 private:
  // Whether all have their channels now. `opener` is what makes one, and goes when it has.
  template <class Lane, class Opener, class Poll>
  static Result<bool> open_all(std::map<LaneId, Lane>& lanes, std::unique_ptr<Opener> Lane::*opener, Poll poll,
                               const gdr::MemoryRef& memory) {
    bool all = true;
    for (auto& [id, lane] : lanes) {
      if (lane.channel) continue;
      auto channel = ((*(lane.*opener)).*poll)();
      if (!channel) return tl::unexpected(channel.error());
      if (const auto ok = take(std::move(*channel), memory, lane); !ok) return tl::unexpected(ok.error());
      if (lane.channel) (lane.*opener).reset();
      all = all && lane.channel != nullptr;
    }
    return all;
  }

  template <class Channel, class Lane>
  static Result<void> take(std::unique_ptr<Channel> channel, const gdr::MemoryRef& memory, Lane& lane) {
    if (channel == nullptr) return {};
    lane.channel = std::move(channel);
    auto registered = lane.channel->reg_mr(memory);
    if (!registered) return tl::unexpected(registered.error());
    lane.memory = std::move(*registered);
    return {};
  }

  // Only while lanes are made: that a flow moves nothing for seconds is what an overloaded line is about.
  Log warnings() const {
    return Log([plays = plays_](LogLevel level, const std::string& message) {
      if (level != LogLevel::kWarn || plays->load()) return;
      std::cerr << fmt::format("clustar coflow play: {}\n", message);
    });
  }

  static void activate(std::vector<LaneId>& active, LaneId id) {
    if (std::find(active.begin(), active.end(), id) == active.end()) active.push_back(id);
  }

  Result<void> push_out(SendLane& lane) {
    while (!lane.flows.empty() && lane.posted.size() < kPosted) {
      FlowToSend& flow = lane.flows.front();
      const std::size_t length = std::min<std::uint64_t>(flow.bytes, kMessage);
      transport::FlowTag tag;
      tag.coflow = flow.coflow;
      tag.bytes = flow.coflow_bytes;
      if (flow.communicator > 0) {
        tag.identity = {.known = true,
                        .communicator = flow.communicator,
                        .number = flow.number,
                        .total_bytes = flow.coflow_bytes,
                        .function = kAllReduce};
      }
      auto request = lane.channel->send(*lane.memory, 0, length, kTag, tag);
      if (!request) return tl::unexpected(request.error());
      if (*request == nullptr) break;
      lane.posted.push_back(*request);
      flow.bytes -= length;
      if (flow.bytes == 0) lane.flows.pop_front();
    }
    while (!lane.posted.empty()) {
      const auto progress = lane.posted.front()->test();
      if (!progress) return tl::unexpected(progress.error());
      if (!progress->done) break;
      lane.posted.pop_front();
      moved_ = true;
    }
    return {};
  }

  Result<void> take_in(ReceiveLane& lane, LaneId id, std::vector<LaneId>& arrived) {
    for (ReceiveLane::Flow& flow : lane.flows) {
      while (flow.to_post > 0 && lane.posted.size() < kPosted) {
        const std::size_t length = std::min<std::uint64_t>(flow.to_post, kMessage);
        const transport::RecvPart part{lane.memory.get(), 0, length, kTag};
        auto request = lane.channel->recv({&part, 1});
        if (!request) return tl::unexpected(request.error());
        if (*request == nullptr) break;
        lane.posted.push_back(*request);
        flow.to_post -= length;
      }
      if (flow.to_post > 0) break;
    }
    while (!lane.posted.empty()) {
      const auto progress = lane.posted.front()->test();
      if (!progress) return tl::unexpected(progress.error());
      if (!progress->done) break;
      lane.posted.pop_front();
      moved_ = true;
      ReceiveLane::Flow& flow = lane.flows.front();
      flow.to_come -= progress->sizes[0];
      if (flow.to_come > 0) continue;
      lane.flows.pop_front();
      arrived.push_back(id);
    }
    return {};
  }

  std::shared_ptr<std::atomic<bool>> plays_ = std::make_shared<std::atomic<bool>>(false);
  SystemClock clock_;
  transport::Selection selection_;
  transport::ChannelOptions options_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(kMessage);  // of all lanes: nobody reads what is sent
  std::map<LaneId, SendLane> sending_;                                // after what they use, and closed before
  std::map<LaneId, ReceiveLane> receiving_;
  std::vector<LaneId> sends_, receives_;  // those that have something to do
  Duration pause_{0};
  bool moved_ = false;  // something ended in the latest move()
};

}  // namespace

Result<std::unique_ptr<Lanes>> transport_lanes() {
  auto lanes = std::make_unique<TransportLanes>();
  if (const auto ok = lanes->choose(); !ok) return tl::unexpected(ok.error());
  return lanes;
}

}  // namespace clustar::bench::coflow::live
