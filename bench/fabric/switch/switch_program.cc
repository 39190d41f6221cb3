#include "bench/fabric/switch/switch_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fmt/format.h>
#include <net/if.h>
#include <switch.skel.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "bench/fabric/switch/port_map.h"

namespace clustar::bench::fabric {
namespace {

constexpr const char* kFix =
    "needs a kernel with eBPF at clsact (CONFIG_BPF_SYSCALL, CONFIG_NET_CLS_BPF, CONFIG_NET_CLS_ACT) and CAP_BPF: "
    "modprobe -a sch_ingress cls_bpf; in a container, start it with --privileged";
constexpr std::uint32_t kFilter = 1;  // handle and priority of our filters
constexpr double kParts = static_cast<double>(SWITCH_CERTAIN);

thread_local std::string g_said;  // by libbpf, on this thread, since capture()

int keep_print(libbpf_print_level level, const char* format, va_list arguments) {
  if (level != LIBBPF_WARN || g_said.size() > 2000) return 0;
  char line[512];
  vsnprintf(line, sizeof(line), format, arguments);
  g_said += line;
  return 0;
}

void capture() {
  static std::once_flag once;
  std::call_once(once, [] { libbpf_set_print(keep_print); });
  g_said.clear();
}

// `error` is negative, as libbpf returns it.
tl::unexpected<Error> refused(const std::string& what, int error) {
  std::string said = std::exchange(g_said, "");
  std::replace(said.begin(), said.end(), '\n', ' ');
  return fail(
      ErrorCode::kUnavailable,
      fmt::format("switch program: cannot {}: {}{}; {}", what, std::strerror(-error),
                  said.empty() ? "" : fmt::format(" ({})", said.substr(0, said.find_last_not_of(' ') + 1)), kFix));
}

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

std::uint64_t parts(double probability) { return static_cast<std::uint64_t>(std::llround(probability * kParts)); }
double probability(std::uint64_t value) { return static_cast<double>(value) / kParts; }

switch_loss_rules to_kernel(const LossRules& rules) {
  const GilbertElliott& ge = rules.gilbert_elliott;
  return {parts(rules.random),
          ge.on ? 1ULL : 0ULL,
          parts(ge.to_bad),
          parts(ge.to_good),
          parts(ge.loss_good),
          parts(ge.loss_bad),
          rules.bursts.every_ns,
          rules.bursts.length_ns,
          parts(rules.bursts.loss),
          rules.bursts.longest_ns,
          parts(rules.bursts.highest_loss),
          rules.bursts.jitter_ns,
          rules.dead ? 1ULL : 0ULL};
}

LossRules from_kernel(const switch_loss_rules& rules) {
  LossRules result;
  result.random = probability(rules.random);
  if (rules.gilbert_elliott != 0) {
    result.gilbert_elliott = {true, probability(rules.to_bad), probability(rules.to_good), probability(rules.loss_good),
                              probability(rules.loss_bad)};
  }
  result.bursts = {rules.burst_every_ns,
                   rules.burst_length_ns,
                   probability(rules.burst_loss),
                   rules.burst_longest_ns,
                   probability(rules.burst_highest_loss),
                   rules.burst_jitter_ns};
  result.dead = rules.dead != 0;
  return result;
}

// Everything but the epochs.
switch_rules to_kernel(const PortPlan& plan) {
  switch_rules rules{};
  rules.rate = plan.line.rate_bps / 8;
  rules.buffer = plan.line.buffer_bytes;
  rules.seed = plan.rules.seed;
  // By name, not by ifindex: the next fabric of the same kind loses the same packets. FNV-1a.
  rules.salt = 0xcbf29ce484222325ULL;
  const std::string& name = plan.name.empty() ? plan.interface : plan.name;
  for (const char c : name) rules.salt = (rules.salt ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  for (std::size_t i = 0; i < plan.rules.classes.size(); ++i) {
    const ClassRules& one = plan.rules.classes[i];
    rules.classes[i] = {one.mark_min_bytes, one.mark_max_bytes, parts(one.mark_probability), one.drop_above_bytes,
                        one.trim ? 1ULL : 0ULL};
  }
  rules.loss[SWITCH_TO_HOST] = to_kernel(plan.rules.to_host);
  rules.loss[SWITCH_FROM_HOST] = to_kernel(plan.rules.from_host);
  return rules;
}

PortRules from_kernel(const switch_rules& rules) {
  PortRules result;
  for (std::size_t i = 0; i < result.classes.size(); ++i) {
    const switch_class_rules& one = rules.classes[i];
    result.classes[i] = {one.mark_min, one.mark_max, probability(one.mark_probability), one.drop_above, one.trim != 0};
  }
  result.to_host = from_kernel(rules.loss[SWITCH_TO_HOST]);
  result.from_host = from_kernel(rules.loss[SWITCH_FROM_HOST]);
  result.seed = rules.seed;
  return result;
}

PortCounters from_kernel(const switch_state& state) {
  PortCounters result;
  for (std::size_t i = 0; i < result.classes.size(); ++i) {
    const switch_class_counters& one = state.counters.classes[i];
    result.classes[i] = {one.packets,           one.bytes,        one.marked,  one.dropped_buffer,
                         one.dropped_selective, one.dropped_loss, one.trimmed, one.largest,
                         one.super_packets,     state.depth[i],   one.deepest};
  }
  result.depth_bytes = state.total;
  result.deepest_bytes = state.counters.deepest;
  result.from_host = {state.counters.from_packets, state.counters.from_bytes, state.counters.from_lost,
                      state.counters.from_largest, state.counters.from_super_packets};
  return result;
}

bpf_tc_hook hook_of(int port, bpf_tc_attach_point point) {
  bpf_tc_hook hook{};
  hook.sz = sizeof(hook);
  hook.ifindex = port;
  hook.attach_point = point;
  return hook;
}

// The program at that hook of the port, 0 without one.
std::uint32_t program_at(int port, bpf_tc_attach_point point) {
  bpf_tc_hook hook = hook_of(port, point);
  bpf_tc_opts options{};
  options.sz = sizeof(options);
  options.handle = options.priority = kFilter;
  return bpf_tc_query(&hook, &options) == 0 ? options.prog_id : 0;
}

// The maps of a switch program that some port of this namespace holds.
struct Found {
  std::uint32_t to_host = 0, from_host = 0;  // the programs' ids
  Descriptor rules, states;
};

std::optional<std::string> program_name(const Descriptor& program, bpf_prog_info& info) {
  std::uint32_t size = sizeof(info);
  if (program.get() < 0 || bpf_obj_get_info_by_fd(program.get(), &info, &size) != 0) return std::nullopt;
  return info.name;
}

Descriptor map_called(const char* name, const std::vector<std::uint32_t>& ids) {
  for (const std::uint32_t id : ids) {
    Descriptor map(bpf_map_get_fd_by_id(id));
    bpf_map_info info{};
    std::uint32_t size = sizeof(info);
    const bool known = map.get() >= 0 && bpf_obj_get_info_by_fd(map.get(), &info, &size) == 0;
    if (known && std::strcmp(info.name, name) == 0) return map;
  }
  return Descriptor();
}

std::optional<Found> maps_of(int port) {
  Found found;
  found.to_host = program_at(port, BPF_TC_EGRESS);
  found.from_host = program_at(port, BPF_TC_INGRESS);
  if (found.to_host == 0) return std::nullopt;
  const Descriptor program(bpf_prog_get_fd_by_id(found.to_host));
  std::vector<std::uint32_t> ids(16);
  bpf_prog_info info{};
  info.map_ids = reinterpret_cast<std::uintptr_t>(ids.data());
  info.nr_map_ids = static_cast<std::uint32_t>(ids.size());
  const auto name = program_name(program, info);
  if (!name || *name != "to_host") return std::nullopt;
  ids.resize(std::min<std::size_t>(info.nr_map_ids, ids.size()));
  found.rules = map_called("port_rules", ids);
  found.states = map_called("port_states", ids);
  if (found.rules.get() < 0 || found.states.get() < 0) return std::nullopt;
  return found;
}

std::optional<Found> find_program() {
  capture();
  std::optional<Found> found;
  struct if_nameindex* const all = if_nameindex();
  for (const struct if_nameindex* one = all; one != nullptr && one->if_index != 0 && !found; ++one) {
    found = maps_of(static_cast<int>(one->if_index));
  }
  if (all != nullptr) if_freenameindex(all);
  capture();
  return found;
}

Result<Found> must_find_program() {
  auto found = find_program();
  if (found) return std::move(*found);
  return fail(ErrorCode::kUnavailable,
              "there is no switch program at the ports; make the fabric again: clustar fabric up");
}

std::vector<std::uint32_t> ports_of(const Found& found) {
  std::vector<std::uint32_t> ports;
  std::uint32_t key = 0;
  for (int more = bpf_map_get_next_key(found.rules.get(), nullptr, &key); more == 0;
       more = bpf_map_get_next_key(found.rules.get(), &key, &key)) {
    ports.push_back(key);
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

Result<switch_rules> read_rules(const Found& found, std::uint32_t port, const std::string& name) {
  switch_rules rules{};
  if (bpf_map_lookup_elem(found.rules.get(), &port, &rules) == 0) return rules;
  return fail(ErrorCode::kUnavailable, fmt::format("the switch program knows no port '{}'", name));
}

Result<void> write_rules(int map, std::uint32_t port, const switch_rules& rules) {
  const int error = bpf_map_update_elem(map, &port, &rules, BPF_ANY);
  if (error != 0) return refused("set the rules of a port", error);
  return {};
}

Result<void> attach_port(const switch_bpf& program, const PortPlan& plan, int port) {
  switch_rules rules = to_kernel(plan);
  rules.epoch = 1;
  if (const auto done = write_rules(bpf_map__fd(program.maps.port_rules), static_cast<std::uint32_t>(port), rules);
      !done) {
    return done;
  }
  const switch_state state{};
  if (const int error = bpf_map_update_elem(bpf_map__fd(program.maps.port_states), &port, &state, BPF_ANY)) {
    return refused("make the state of a port", error);
  }
  bpf_tc_hook both = hook_of(port, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
  if (const int error = bpf_tc_hook_create(&both); error != 0 && error != -EEXIST) {
    return refused(fmt::format("add clsact to {}", plan.interface), error);
  }
  for (const auto& [point, own] :
       {std::pair{BPF_TC_EGRESS, program.progs.to_host}, std::pair{BPF_TC_INGRESS, program.progs.from_host}}) {
    bpf_tc_hook hook = hook_of(port, point);
    bpf_tc_opts options{};
    options.sz = sizeof(options);
    options.prog_fd = bpf_program__fd(own);
    options.handle = options.priority = kFilter;
    if (const int error = bpf_tc_attach(&hook, &options)) {
      return refused(fmt::format("attach to {}", plan.interface), error);
    }
  }
  return {};
}

void detach_port(int port) {
  bpf_tc_hook both = hook_of(port, static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS));
  (void)bpf_tc_hook_destroy(&both);
}

// What the line has carried since the last packet, too.
void drain_until_now(switch_state& state, const switch_rules& rules) {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);  // the clock of bpf_ktime_get_ns
  switch_drain(&state, rules.rate,
               static_cast<std::uint64_t>(now.tv_sec) * SWITCH_NS_PER_S + static_cast<std::uint64_t>(now.tv_nsec));
}

}  // namespace

Result<void> attach_switch(std::span<const PortPlan> ports) {
  if (find_program()) {
    return fail(ErrorCode::kInvalidUsage, "a switch program is at the ports; change its rules, or remove the fabric");
  }
  if (ports.empty()) return {};
  const std::unique_ptr<switch_bpf, void (*)(switch_bpf*)> program(switch_bpf__open(), switch_bpf__destroy);
  if (!program) return refused("open", -errno);
  const auto count = static_cast<std::uint32_t>(ports.size());
  bpf_map__set_max_entries(program->maps.port_rules, count);
  bpf_map__set_max_entries(program->maps.port_states, count);
  if (const int error = switch_bpf__load(program.get())) return refused("load", error);
  std::vector<int> done;
  for (const PortPlan& plan : ports) {
    const int port = static_cast<int>(if_nametoindex(plan.interface.c_str()));
    done.push_back(port);
    const auto attached = port > 0 ? attach_port(*program, plan, port)
                                   : Result<void>(refused("find the interface " + plan.interface, -ENODEV));
    if (attached) continue;
    for (const int one : done) detach_port(one);
    return attached;
  }
  return {};
}

Result<std::vector<ProgramPort>> read_switch() {
  std::vector<ProgramPort> ports;
  const auto found = find_program();
  if (!found) return ports;
  for (const std::uint32_t port : ports_of(*found)) {
    char name[IF_NAMESIZE] = "";
    if (if_indextoname(port, name) == nullptr) continue;
    const auto rules = read_rules(*found, port, name);
    if (!rules) return tl::unexpected(rules.error());
    switch_state state{};
    // Under the program's lock, so that the counters belong together.
    if (const int error = bpf_map_lookup_elem_flags(found->states.get(), &port, &state, BPF_F_LOCK)) {
      return refused("read the counters of a port", error);
    }
    drain_until_now(state, *rules);
    // Reset since, but no packet has passed that would have done it.
    if (state.counter_epoch != rules->counter_epoch) state.counters = {};
    ProgramPort one;
    one.interface = name;
    one.program_id = found->to_host;
    one.attached = program_at(static_cast<int>(port), BPF_TC_EGRESS) == found->to_host &&
                   program_at(static_cast<int>(port), BPF_TC_INGRESS) == found->from_host;
    one.line = {rules->rate * 8, rules->buffer};
    one.rules = from_kernel(*rules);
    one.counters = from_kernel(state);
    ports.push_back(std::move(one));
  }
  return ports;
}

Result<void> change_port(const std::string& interface, const PortRules& rules) {
  const auto found = must_find_program();
  if (!found) return tl::unexpected(found.error());
  const std::uint32_t port = if_nametoindex(interface.c_str());
  const auto before = read_rules(*found, port, interface);
  if (!before) return tl::unexpected(before.error());
  switch_rules after = to_kernel({interface, {before->rate * 8, before->buffer}, rules, {}});
  after.salt = before->salt;
  after.epoch = before->epoch + 1;
  after.counter_epoch = before->counter_epoch;
  return write_rules(found->rules.get(), port, after);
}

Result<void> reset_counters() {
  const auto found = must_find_program();
  if (!found) return tl::unexpected(found.error());
  for (const std::uint32_t port : ports_of(*found)) {
    auto rules = read_rules(*found, port, std::to_string(port));
    if (!rules) return tl::unexpected(rules.error());
    rules->counter_epoch += 1;
    if (const auto done = write_rules(found->rules.get(), port, *rules); !done) return done;
  }
  return {};
}

}  // namespace clustar::bench::fabric
