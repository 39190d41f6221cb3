#include "bench/perf/plugin_wire.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>

#include "bench/proxy/plugin_error.h"

namespace clustar::bench::perf {
namespace {

using nccl_abi::kSuccess;

std::string to_hex(const proxy::Handle& handle) {
  std::string text;
  for (const std::byte byte : handle) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

bool from_hex(const std::string& text, proxy::Handle* handle) {
  if (text.size() != handle->size() * 2) return false;
  for (std::size_t i = 0; i < handle->size(); ++i) {
    unsigned value = 0;
    const char* begin = text.data() + 2 * i;
    if (std::from_chars(begin, begin + 2, value, 16).ptr != begin + 2) return false;
    (*handle)[i] = static_cast<std::byte>(value);
  }
  return true;
}

// kInternal is left for what a worker finds itself: see failure.h.
Error call_error(const proxy::NetPlugin& plugin, std::string_view what, int result) {
  Error error = proxy::plugin_error(plugin, what, result);
  if (error.code == ErrorCode::kInternal) error.code = ErrorCode::kSystem;
  return error;
}

constexpr int kSizeNotReported = -1;

}  // namespace

Result<std::unique_ptr<PluginWire>> PluginWire::open(const PluginSpec& spec) {
  auto plugin = proxy::NetPlugin::open(spec.path, spec.version);
  if (!plugin) return tl::unexpected(plugin.error());
  auto wire = std::unique_ptr<PluginWire>(new PluginWire(std::move(*plugin)));
  if (auto ok = wire->init(spec); !ok) return tl::unexpected(ok.error());
  return wire;
}

Result<void> PluginWire::init(const PluginSpec& spec) {
  const auto bad = [&](const char* what, int result) {
    return tl::unexpected(call_error(*plugin_, fmt::format("{} of '{}'", what, spec.path), result));
  };
  if (int result = plugin_->init(0x70657266, nccl_abi::kTrafficClassUndefined, &ctx_); result != kSuccess) {
    return bad("init", result);
  }
  initialised_ = true;
  int devices = 0;
  if (int result = plugin_->devices(&devices); result != kSuccess) return bad("devices", result);
  if (spec.device >= devices) {
    return fail(ErrorCode::kUnavailable,
                fmt::format("device {} of '{}': it has {} here{}", spec.device, spec.path, devices,
                            devices == 0 ? "; see its setting for interfaces (e.g. NCCL_SOCKET_IFNAME=lo)" : ""));
  }
  proxy::NetProperties properties;
  if (int result = plugin_->get_properties(spec.device, &properties); result != kSuccess) {
    return bad("getProperties", result);
  }
  device_ = spec.device;
  description_ = {plugin_->name(), plugin_->version(), properties.name, properties.speed_mbps, plugin_->transport()};
  return {};
}

PluginWire::~PluginWire() { (void)close(); }

Result<std::vector<std::string>> PluginWire::listen(int count) {
  std::vector<std::string> handles;
  for (int i = 0; i < count; ++i) {
    proxy::Handle handle{};
    void* comm = nullptr;
    const int result = plugin_->listen(ctx_, device_, &handle, &comm);
    if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "listen", result));
    if (comm == nullptr) return fail(ErrorCode::kInternal, "listen returned ncclSuccess and no listenComm");
    listeners_.push_back(comm);
    handles.push_back(to_hex(handle));
  }
  return handles;
}

Result<void> PluginWire::connect(const std::vector<std::string>& handles, Clock::time_point deadline) {
  std::vector<proxy::Handle> binary(handles.size());
  for (std::size_t i = 0; i < handles.size(); ++i) {
    if (!from_hex(handles[i], &binary[i])) return fail(ErrorCode::kRemote, "the peer's handle is malformed");
  }
  outgoing_.resize(handles.size());
  incoming_.resize(listeners_.size());
  for (std::size_t open = outgoing_.size() + incoming_.size(); open > 0;) {
    const std::size_t before = open;
    for (std::size_t i = 0; i < outgoing_.size(); ++i) {
      if (outgoing_[i].comm != nullptr) continue;
      const int result = plugin_->connect(ctx_, device_, &binary[i], &outgoing_[i].comm);
      if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "connect", result));
      open -= outgoing_[i].comm != nullptr ? 1 : 0;
    }
    for (std::size_t i = 0; i < incoming_.size(); ++i) {
      if (incoming_[i].comm != nullptr) continue;
      const int result = plugin_->accept(listeners_[i], &incoming_[i].comm);
      if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "accept", result));
      open -= incoming_[i].comm != nullptr ? 1 : 0;
    }
    if (open == before) {
      if (Clock::now() > deadline) {
        return fail(ErrorCode::kRemote, "the peer did not connect in time; is its address reachable (--timeout)?");
      }
      sched_yield();
    }
  }
  return {};
}

Result<void> PluginWire::attach_one(Channel& channel, const Memory& memory) {
  const int result = plugin_->reg_mr(channel.comm, memory.data(), memory.size(), nccl_abi::kPtrHost, &channel.mhandle);
  if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "regMr", result));
  channel.memory = memory.data();
  return {};
}

Result<void> PluginWire::attach(const Memory& send, const Memory& receive) {
  for (Channel& channel : outgoing_) {
    if (auto ok = attach_one(channel, send); !ok) return ok;
  }
  for (Channel& channel : incoming_) {
    if (auto ok = attach_one(channel, receive); !ok) return ok;
  }
  return {};
}

void PluginWire::note(Result<void>& first, const char* call, int result) const {
  if (result != kSuccess && first) first = tl::unexpected(call_error(*plugin_, call, result));
}

Result<void> PluginWire::detach() {
  Result<void> first;
  for (auto* channels : {&outgoing_, &incoming_}) {
    for (Channel& channel : *channels) {
      if (channel.memory == nullptr) continue;
      note(first, "deregMr", plugin_->dereg_mr(channel.comm, channel.mhandle));
      channel.memory = nullptr;
    }
  }
  return first;
}

Result<void> PluginWire::close() {
  Result<void> first = detach();
  for (Channel& channel : outgoing_) {
    if (channel.comm != nullptr) note(first, "closeSend", plugin_->close_send(channel.comm));
  }
  for (Channel& channel : incoming_) {
    if (channel.comm != nullptr) note(first, "closeRecv", plugin_->close_recv(channel.comm));
  }
  for (void* listener : listeners_) note(first, "closeListen", plugin_->close_listen(listener));
  outgoing_.clear();
  incoming_.clear();
  listeners_.clear();
  if (initialised_ && (plugin_->version() <= 10 || plugin_->has_finalize())) {
    (void)plugin_->take_log();
    note(first, "finalize", plugin_->finalize(ctx_));
    for (proxy::LogLine& line : plugin_->take_log()) last_words_.push_back(std::move(line.text));
  }
  initialised_ = false;
  return first;
}

Result<void*> PluginWire::post_send(int channel, std::size_t offset, std::size_t bytes) {
  const Channel& at = outgoing_[static_cast<std::size_t>(channel)];
  void* request = nullptr;
  const int result = plugin_->isend(at.comm, at.memory + offset, bytes, 0, at.mhandle, nullptr, &request);
  if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "isend", result));
  return request;
}

Result<void*> PluginWire::post_receive(int channel, std::size_t offset, std::size_t bytes) {
  const Channel& at = incoming_[static_cast<std::size_t>(channel)];
  void* data = at.memory + offset;
  void* mhandle = at.mhandle;
  int tag = 0;
  void* request = nullptr;
  const int result = plugin_->irecv(at.comm, 1, &data, &bytes, &tag, &mhandle, nullptr, &request);
  if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "irecv", result));
  return request;
}

Result<Tested> PluginWire::test(void* request) {
  int done = 0;
  int size = kSizeNotReported;
  const int result = plugin_->test(request, &done, &size);
  if (result != kSuccess) return tl::unexpected(call_error(*plugin_, "test", result));
  if (done == 0) return Tested{};
  if (size == kSizeNotReported) return Tested{true, std::nullopt};
  return Tested{true, static_cast<std::size_t>(size)};
}

}  // namespace clustar::bench::perf
