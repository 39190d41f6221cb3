#include "bench/lossy/transport_endpoint.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <utility>

#include "bench/lossy/kernel_tcp.h"
#include "bench/proxy/socket_io.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::lossy {
namespace {

constexpr std::chrono::microseconds kPollStep{200};  // while connecting
// How long sleep() does not listen after packets came, and how long it listens. Together less than the millisecond
// after which the engine's thread takes callers for silent.
constexpr long kNapNs = 150'000;
constexpr long kSenderNs = 500'000, kReceiverNs = 200'000;
constexpr long kBlindNs = 50'000;    // where nobody tells
constexpr long kAwayNs = 4'000'000;  // a sender whose messages are all posted: when it knows of their end is no figure

std::string to_hex(const transport::Handle& handle) {
  std::string text;
  for (const std::byte byte : handle) text += fmt::format("{:02x}", std::to_integer<int>(byte));
  return text;
}

Result<transport::Handle> from_hex(const std::string& text) {
  transport::Handle handle{};
  if (text.size() != 2 * handle.size()) return fail(ErrorCode::kInternal, "a handle of another length");
  for (std::size_t i = 0; i < handle.size(); ++i) {
    std::uint8_t value = 0;
    const char* const at = text.data() + 2 * i;
    if (std::from_chars(at, at + 2, value, 16).ptr != at + 2) return fail(ErrorCode::kInternal, "no handle");
    handle[i] = std::byte{value};
  }
  return handle;
}

void log_line(LogLevel level, const std::string& message) {
  if (level == LogLevel::kWarn) std::cerr << "clustar perf: " << message << "\n";
}

}  // namespace

TransportEndpoint::TransportEndpoint(const Terms& terms, bool sends)
    : terms_(terms), sends_(sends), channels_(static_cast<std::size_t>(sends ? 1 : terms.senders)) {
  for (Channel& channel : channels_) {
    channel.memory.resize(terms.message_bytes * static_cast<std::size_t>(terms.window));
  }
}

Result<std::unique_ptr<Endpoint>> TransportEndpoint::create(const Terms& terms, bool sends) {
  // The transport calls it an error, and it is one where somebody has chosen it for good.
  if (terms.arm.carrier == Carrier::kClustarTcp) {
    const FileDescriptor probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (auto known = set_congestion(probe.fd(), terms.arm.congestion); !known) return tl::unexpected(known.error());
  }
  std::unique_ptr<TransportEndpoint> endpoint(new TransportEndpoint(terms, sends));
  auto made = make_transport(terms, endpoint->clock_, Log(log_line));
  if (!made) return tl::unexpected(made.error());
  endpoint->made_ = std::move(*made);
  return endpoint;
}

Result<std::vector<std::string>> TransportEndpoint::listen(const std::string&) {
  std::vector<std::string> handles;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    auto listener = made_.selection.transport->listen(0, channel_options(terms_));
    if (!listener) return tl::unexpected(listener.error());
    handles.push_back(to_hex((*listener)->handle()));
    listeners_.push_back(std::move(*listener));
  }
  return handles;
}

Result<void> TransportEndpoint::ready(Channel& channel) {
  const auto memory = gdr::MemoryRef::host(channel.memory.data(), channel.memory.size());
  auto mr = sends_ ? channel.send->reg_mr(memory) : channel.receive->reg_mr(memory);
  if (!mr) return tl::unexpected(mr.error());
  channel.mr = std::move(*mr);
  return {};
}

Result<void> TransportEndpoint::accept(SteadyClock::time_point deadline) {
  std::size_t accepted = 0;
  while (accepted < channels_.size()) {
    if (SteadyClock::now() > deadline) {
      return fail(ErrorCode::kRemote, fmt::format("only {} of {} senders connected", accepted, channels_.size()));
    }
    for (std::size_t i = 0; i < channels_.size(); ++i) {
      if (channels_[i].receive != nullptr) continue;
      auto got = listeners_[i]->poll_accept();
      if (!got) return tl::unexpected(got.error());
      if (*got == nullptr) continue;
      channels_[i].receive = std::move(*got);
      if (auto ok = ready(channels_[i]); !ok) return ok;
      ++accepted;
    }
    std::this_thread::sleep_for(kPollStep);
  }
  listeners_.clear();
  return {};
}

Result<void> TransportEndpoint::connect(const std::string& where, int, SteadyClock::time_point deadline) {
  const auto handle = from_hex(where);
  if (!handle) return tl::unexpected(handle.error());
  auto pending = made_.selection.transport->connect(0, *handle, channel_options(terms_));
  if (!pending) return tl::unexpected(pending.error());
  while (SteadyClock::now() < deadline) {
    auto got = (*pending)->poll();
    if (!got) return tl::unexpected(got.error());
    if (*got != nullptr) {
      channels_[0].send = std::move(*got);
      return ready(channels_[0]);
    }
    std::this_thread::sleep_for(kPollStep);
  }
  return fail(ErrorCode::kRemote, "the receiver did not accept the connection in time");
}

std::span<std::byte> TransportEndpoint::memory(int peer, int slot) {
  auto& memory = channels_[static_cast<std::size_t>(peer)].memory;
  return std::span(memory).subspan(static_cast<std::size_t>(slot) * terms_.message_bytes, terms_.message_bytes);
}

// Leaves the request null when the channel has too much outstanding; progress() tries again.
Result<void> TransportEndpoint::start(Channel& channel, Message& message) {
  const std::size_t offset = static_cast<std::size_t>(message.slot) * terms_.message_bytes;
  Result<transport::Request*> request = nullptr;
  if (sends_) {
    request = channel.send->send(*channel.mr, offset, terms_.message_bytes, 0, flow_tag(terms_, message.round));
  } else {
    const transport::RecvPart part{channel.mr.get(), offset, terms_.message_bytes, 0};
    request = channel.receive->recv(std::span(&part, 1));
  }
  if (!request) return tl::unexpected(request.error());
  message.request = *request;
  return {};
}

Result<void> TransportEndpoint::post(int peer, int slot, std::uint32_t round) {
  Channel& channel = channels_[static_cast<std::size_t>(peer)];
  channel.messages.push_back({slot, round, nullptr});
  return start(channel, channel.messages.back());
}

Result<void> TransportEndpoint::progress(std::vector<Ended>& ended) {
  for (std::size_t peer = 0; peer < channels_.size(); ++peer) {
    auto& messages = channels_[peer].messages;
    while (!messages.empty()) {
      Message& message = messages.front();
      if (message.request == nullptr) {
        if (auto ok = start(channels_[peer], message); !ok) return ok;
        if (message.request == nullptr) break;  // nor will those behind it
      }
      const auto progress = message.request->test();
      if (!progress) return tl::unexpected(progress.error());
      // Each look at a request that is not done is a turn of the engine with its system calls, so only the oldest is
      // looked at, as NCCL's proxy does.
      if (!progress->done) break;
      ended.push_back({static_cast<int>(peer), message.slot, {progress->missing.begin(), progress->missing.end()}});
      messages.pop_front();
    }
  }
  return {};
}

void TransportEndpoint::sleep() {
  const auto begun = [](const Message& message) { return message.request != nullptr; };
  const auto all_begun = [&](const Channel& channel) { return std::ranges::all_of(channel.messages, begun); };
  const bool nothing_to_post = sends_ && terms_.messages <= terms_.window && std::ranges::all_of(channels_, all_begun);
  if (nothing_to_post && !made_.readable->empty()) {  // the engine's thread does the work, and sleeps until it is due
    const timespec nap{0, kAwayNs};
    nanosleep(&nap, nullptr);
    return;
  }
  if (traffic_) {  // being woken for each packet costs more than the packet
    const timespec nap{0, kNapNs};
    nanosleep(&nap, nullptr);
  }
  std::array<pollfd, 64> polled;
  nfds_t count = 0;
  for (const int fd : *made_.readable) {
    if (count < polled.size()) polled[count++] = {fd, POLLIN, 0};
  }
  const timespec limit{0, count == 0 ? kBlindNs : sends_ ? kSenderNs : kReceiverNs};
  traffic_ = ppoll(polled.data(), count, &limit, nullptr) > 0;
}

Result<nlohmann::json> TransportEndpoint::facts() {
  const transport::Counters counters = made_.selection.transport->counters();
  nlohmann::json facts{{"transport", counters.transport}, {"summary", counters.summary()}};
  std::uint64_t again = 0;
  for (const transport::DeviceCounters& device : counters.devices) again += device.retransmitted;
  facts["retransmitted_packets"] = again;
  return facts;
}

}  // namespace clustar::bench::lossy
