#include "transport/verbs/nic.h"

#include <fmt/format.h>

#include <fstream>
#include <utility>

#include "transport/verbs/memory.h"

namespace clustar::transport::verbs {
namespace {

std::string hardware_counter(const Port& port, const char* name) {
  return fmt::format("/sys/class/infiniband/{}/ports/{}/hw_counters/{}", port.info.device, port.info.port, name);
}

std::string down_text(const Port& port, const std::string& since) {
  return fmt::format("the link of {} is down{}: check the cable, the switch's port, `ip link`, ibv_devinfo",
                     port.name(), since);
}

gdr::PageSizes pages_of(const DeviceMemory& memory) {
  gdr::PageSizes pages = gdr::page_sizes();
  // Host memory in the part of a GPU's has the host's pages: what is around it may be nobody's.
  if (memory.facts.emulated) pages.device = pages.host;
  return pages;
}

}  // namespace

Nic::Nic(std::vector<Port> ports, net::Interface control, const Context& context, std::unique_ptr<SendPolicy> policy,
         std::uint64_t bytes_per_second)
    : ports_(std::move(ports)),
      device_memory_(find_device_memory(ports_, context.settings)),
      registrar_(ports_, device_memory_, context.log),
      registrations_(registrar_, pages_of(device_memory_)),
      states_(ports_.size()),
      control_(std::move(control)),
      context_(context),
      engine_(context.clock, std::move(policy), {context.settings.send_ahead, bytes_per_second}) {
  first_retries_ = count_retries();
}

std::string Nic::name() const {
  std::string joined;
  for (const Port& port : ports_) {
    const std::string number = port.info.port == 1 ? "" : fmt::format(":{}", port.info.port);
    joined += (joined.empty() ? "" : "+") + port.info.device + number;
  }
  return joined;
}

Result<Regions> Nic::reg(const gdr::MemoryRef& memory, int access) {
  if (!device_memory_.has(memory.kind)) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("verbs: {} does not register {} memory ({})", name(),
                                                         gdr::to_string(memory.kind), device_memory_.text));
  }
  auto lease = registrations_.acquire(memory, static_cast<std::uint32_t>(access));
  if (!lease) return tl::unexpected(lease.error());
  return Regions(std::move(*lease));
}

int Nic::relaxed() const {
  return context_.settings.relaxed_ordering == Choice::kOff ? 0 : static_cast<int>(IBV_ACCESS_RELAXED_ORDERING);
}

void Nic::watch(bool at_once) {
  const TimePoint now = context_.clock.now();
  if (!at_once && now.time_since_epoch().count() < next_watch_.load(std::memory_order_relaxed)) return;
  const std::unique_lock lock(events_mutex_, std::try_to_lock);
  if (!lock) return;
  next_watch_.store((now + kWatchInterval).time_since_epoch().count(), std::memory_order_relaxed);
  for (std::size_t port = 0; port < ports_.size(); ++port) take_events(port, now);
}

void Nic::take_events(std::size_t port, TimePoint now) {
  const Port& watched = ports_[port];
  PortState& state = states_[port];
  for (int taken = 0; taken < 16; ++taken) {
    const auto event = watched.device.poll_event();
    if (!event) {
      if (!state.dead.exchange(true)) context_.log.warn(event.error().message);
      return;
    }
    if (!*event) return;
    const io::verbs::DeviceEvent& what = **event;
    if (what.queue_pair != 0 && what.fatal) {
      // Its completions tell the rest.
      context_.log.info(what.text);
    } else if (what.port == watched.info.port && what.type == IBV_EVENT_PORT_ERR) {
      state.down_since.store(now.time_since_epoch().count());
      context_.log.warn(what.text);
    } else if (what.port == watched.info.port && what.type == IBV_EVENT_PORT_ACTIVE) {
      state.down_since.store(0);
      context_.log.info(what.text);
    } else if (what.type == IBV_EVENT_DEVICE_FATAL) {
      state.dead.store(true);
      context_.log.warn(what.text);
    }
  }
}

std::optional<std::string> Nic::link_state(std::size_t port) const {
  const std::int64_t since = states_[port].down_since.load(std::memory_order_relaxed);
  if (since == 0) return std::nullopt;
  const Duration down = context_.clock.now().time_since_epoch() - Duration(since);
  return down_text(ports_[port], fmt::format(" since {:.1f} s", std::chrono::duration<double>(down).count()));
}

std::optional<std::string> Nic::link_state_now(std::size_t port) {
  watch(true);
  if (auto known = link_state(port)) return known;
  const auto state = ports_[port].device.port(ports_[port].info.port);
  if (!state || state->state == IBV_PORT_ACTIVE) return std::nullopt;
  return down_text(ports_[port], "");
}

std::optional<std::string> Nic::trouble(std::size_t port) const {
  const PortState& state = states_[port];
  if (state.dead.load(std::memory_order_relaxed)) {
    return fmt::format("the device of {} failed or was removed: see `dmesg`; it needs a reset", ports_[port].name());
  }
  const std::int64_t since = state.down_since.load(std::memory_order_relaxed);
  const Duration now = context_.clock.now().time_since_epoch();
  if (since == 0 || now - Duration(since) < kPortGrace) return std::nullopt;
  return link_state(port);
}

std::uint64_t Nic::count_retries() const {
  std::uint64_t sum = 0;
  for (const Port& port : ports_) {
    for (const char* name : {"completer_retry_err", "local_ack_timeout_err", "packet_seq_err"}) {
      std::ifstream in(hardware_counter(port, name));
      std::uint64_t count = 0;
      if (in >> count) sum += count;
    }
  }
  return sum;
}

std::uint64_t Nic::retries() const { return count_retries() - first_retries_; }

}  // namespace clustar::transport::verbs
