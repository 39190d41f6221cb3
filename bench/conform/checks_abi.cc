// abi.*: what the library exports and says about itself.
#include <elf.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "bench/conform/raw_table.h"
#include "bench/conform/session.h"
#include "nccl_plugin/abi/tables.h"

namespace clustar::bench::conform {
namespace {

struct Release {
  const char* name;
  int newest, oldest;
};
constexpr std::array kReleases = {Release{"2.30", 12, 6}, Release{"2.28-2.29", 11, 6}, Release{"2.26-2.27", 10, 6},
                                  Release{"2.24-2.25", 9, 5}};

std::string check_tables(const Env& env) {
  const auto versions = proxy::NetPlugin::exported_versions(env.plugin);
  if (!versions) fail_check(versions.error().message);
  if (versions->empty()) fail_check("none of ncclNetPlugin_v12 .. ncclNetPlugin_v6 is exported");
  std::vector<std::string> taken;
  for (const Release& release : kReleases) {
    const auto hit = std::find_if(versions->begin(), versions->end(),
                                  [&](int version) { return version <= release.newest && version >= release.oldest; });
    taken.push_back(hit == versions->end() ? fmt::format("{} none", release.name)
                                           : fmt::format("{} takes v{}", release.name, *hit));
  }
  return fmt::format("exports v{}; NCCL {}", fmt::join(*versions, ", v"), fmt::join(taken, ", "));
}

std::string check_symbol(const Env& env) {
  const RawTable table(env.plugin, env.version);
  const std::size_t wanted = table.slots() * sizeof(void*);
  if (table.symbol_type() != STT_OBJECT && table.symbol_type() != STT_NOTYPE) {
    fail_check(fmt::format("ncclNetPlugin_v{} has ELF symbol type {}, not a data object ({})", env.version,
                           table.symbol_type(), STT_OBJECT));
  }
  if (table.symbol_bytes() != 0 && table.symbol_bytes() < wanted) {
    fail_check(fmt::format("ncclNetPlugin_v{} is {} bytes, NCCL reads {}", env.version, table.symbol_bytes(), wanted));
  }
  return fmt::format("{} bytes, NCCL reads {}", table.symbol_bytes(), wanted);
}

std::string check_slots(const Env& env) {
  const RawTable table(env.plugin, env.version);
  const std::set<Slot> optional = {kRegMrDmaBuf, kIflush, kGetDeviceMr, kIrecvConsumed, kMakeVDevice, kSetNetAttr};
  std::vector<std::string> missing, absent;
  for (std::size_t i = 0; i < table.slots(); ++i) {
    const Slot slot = static_cast<Slot>(i);
    if (table.slot(slot) == nullptr) (optional.count(slot) != 0 ? absent : missing).push_back(slot_name(slot));
  }
  if (!missing.empty()) fail_check(fmt::format("NULL: {}", fmt::join(missing, ", ")));
  if (absent.empty()) return "all slots are filled";
  return fmt::format("all that NCCL calls without looking; left out: {}", fmt::join(absent, ", "));
}

std::string check_name(const Env& env) {
  const RawTable table(env.plugin, env.version);
  if (table.name() == nullptr || table.name()[0] == '\0') fail_check("the table's name is empty");
  const std::string before = table.name();
  Session session(env);
  const Link link = session.link();
  if (session.net().name() != before) {
    fail_check(fmt::format("the name was '{}' at load and is '{}' after init", before, session.net().name()));
  }
  return fmt::format("'{}'; force it with NCCL_NET={}", before, before);
}

std::string check_devices(const Env& env) {
  Session session(env);  // ends the check when init or devices fails, or devices gives 0
  int first = 0, second = 0;
  session.must(session.net().devices(&first), "devices");
  session.must(session.net().devices(&second), "devices");
  if (first != second) fail_check(fmt::format("devices gives {}, then {}", first, second));
  return fmt::format("{} device{}", first, first == 1 ? "" : "s");
}

// What NCCL would stumble over in the properties of one device.
std::vector<std::string> property_problems(const proxy::NetProperties& props) {
  std::vector<std::string> problems;
  const auto want = [&](bool ok, std::string text) {
    if (!ok) problems.push_back(std::move(text));
  };
  const auto size_ok = [](std::size_t bytes) { return bytes > 0 && bytes <= nccl_abi::kMaxBytesV9; };
  want(!props.name.empty(), "the name is empty");
  want(props.pci_path.empty() || access(props.pci_path.c_str(), F_OK) == 0,
       fmt::format("pciPath '{}' does not exist", props.pci_path));
  want((props.ptr_support & nccl_abi::kPtrHost) != 0,
       fmt::format("ptrSupport {:#x} lacks NCCL_PTR_HOST (1)", props.ptr_support));
  want(props.speed_mbps > 0, fmt::format("speed is {} Mbit/s", props.speed_mbps));
  want(std::isfinite(props.latency_us) && props.latency_us >= 0, fmt::format("latency is {} us", props.latency_us));
  want(props.max_comms > 0, fmt::format("maxComms is {}", props.max_comms));
  want(props.max_recvs >= 1 && props.max_recvs <= 8, fmt::format("maxRecvs is {} (1 .. 8)", props.max_recvs));
  want(props.device_type == 0 || (props.device_type == 1 && props.device_version == 7),
       fmt::format("netDeviceType {} version {}: NCCL takes HOST (0), or UNPACK (1) version 7", props.device_type,
                   props.device_version));
  want(size_ok(props.max_p2p_bytes), fmt::format("maxP2pBytes is {} (1 .. 1 TiB)", props.max_p2p_bytes));
  want(size_ok(props.max_coll_bytes), fmt::format("maxCollBytes is {} (1 .. 1 TiB)", props.max_coll_bytes));
  return problems;
}

std::string check_properties(const Env& env) {
  Session session(env);
  int count = 0;
  session.must(session.net().devices(&count), "devices");
  std::string summary;
  for (int dev = 0; dev < count; ++dev) {
    proxy::NetProperties props, again;
    session.must(session.net().get_properties(dev, &props), "getProperties");
    session.must(session.net().get_properties(dev, &again), "getProperties");
    const auto problems = property_problems(props);
    if (!problems.empty()) fail_check(fmt::format("device {}: {}", dev, fmt::join(problems, "; ")));
    if (props.name != again.name || props.speed_mbps != again.speed_mbps || props.guid != again.guid) {
      fail_check(fmt::format("device {}: two calls of getProperties differ in name, speed or guid", dev));
    }
    if (dev == 0) {
      summary = fmt::format("'{}', {} Mbit/s, ptrSupport {:#x}, maxRecvs {}, maxComms {}, pciPath {}", props.name,
                            props.speed_mbps, props.ptr_support, props.max_recvs, props.max_comms,
                            props.pci_path.empty() ? "NULL (no GPU counts as near)" : props.pci_path);
    }
  }
  return summary;
}

std::string check_init_repeated(const Env& env) {
  constexpr int kComms = 8;
  Session session(env);
  std::array<void*, kComms> contexts{};
  for (std::size_t i = 0; i < kComms; ++i) {
    note_step(fmt::format("initialising communicator {}", i + 2));
    note_call("init");
    session.must(session.net().init(1000 + i, nccl_abi::kTrafficClassUndefined, &contexts[i]), "a repeated init");
    int count = 0;
    session.must(session.net().devices(&count), "devices after a repeated init");
    if (count <= 0) fail_check(fmt::format("devices gives {} after init {}", count, i + 2));
  }
  Link before = session.link();
  for (void* ctx : contexts) {
    note_step("finalizing the other communicators");
    note_call("finalize");
    if (session.net().version() <= 10 || session.net().has_finalize()) {
      session.must(session.net().finalize(ctx), "finalize of another communicator");
    }
  }
  exchange(session, before, 4096, 1);
  Link after = session.link();
  exchange(session, after, 4096, 2);
  return fmt::format("{} inits; one communicator went on while {} were finalized", kComms + 1, kComms);
}

std::string check_finalize_null(const Env& env) {
  const RawTable table(env.plugin, env.version);
  if (env.version < 11) skip_check("NCCL calls finalize from v11 on");
  // finalize has this type in v11 and v12.
  using Finalize = decltype(nccl_abi::TableV11::finalize);
  const auto finalize = reinterpret_cast<Finalize>(const_cast<void*>(table.slot(kFinalize)));
  if (finalize == nullptr) fail_check("finalize is NULL");
  note_step("finalizing with ctx NULL and no init before, as after an init that failed");
  note_call("finalize");
  const int without_init = finalize(nullptr);
  Session session(env);
  Link link = session.link();
  note_step("finalizing with ctx NULL while a communicator lives");
  note_call("finalize");
  const int while_alive = finalize(nullptr);
  exchange(session, link, 4096, 1);
  return fmt::format("returned {} and {}; the live communicator went on", result_name(without_init),
                     result_name(while_alive));
}

// A virtual device as NCCL goes on with it: counted, described, connected.
void check_virtual_device(Session& session, int dev, int before) {
  int after = 0;
  session.must(session.net().devices(&after), "devices after makeVDevice");
  if (dev < before || dev >= after) {
    fail_check(
        fmt::format("makeVDevice gives device {}, devices gives {} before and {} after it; NCCL looks for new "
                    "devices behind the old ones",
                    dev, before, after));
  }
  proxy::NetProperties props;
  session.must(session.net().get_properties(dev, &props), "getProperties of a virtual device");
  const auto problems = property_problems(props);
  if (!problems.empty()) fail_check(fmt::format("virtual device {}: {}", dev, fmt::join(problems, "; ")));
  if (props.fused != std::vector{0, 1}) {
    fail_check(fmt::format("the vProps of virtual device {} name devices {}, not 0, 1, of which it was made", dev,
                           fmt::join(props.fused, ", ")));
  }
  for (int plain = 0; plain < before; ++plain) {
    proxy::NetProperties other;
    session.must(session.net().get_properties(plain, &other), "getProperties after makeVDevice");
    if (other.name == props.name) {
      fail_check(fmt::format("virtual device {} has the name '{}' of device {}; NCCL tells devices by their names", dev,
                             props.name, plain));
    }
  }
  Link link = session.link(dev);
  exchange(session, link, 100'000, 3);
}

std::string check_fusion(const Env& env) {
  if (env.version < 9) return "v8 and older have no makeVDevice";
  Session session(env);
  if (!session.net().has_make_v_device()) return "makeVDevice is NULL: NCCL takes the devices as they are";
  int before = 0;
  session.must(session.net().devices(&before), "devices");
  if (before < 2) return "one device: NCCL has nothing to fuse";
  note_step("fusing devices 0 and 1");
  const std::array members{0, 1};
  int dev = -1;
  const int result = session.bounded("makeVDevice", [&] { return session.net().make_v_device(members, &dev); });
  if (result == nccl_abi::kSuccess) {
    check_virtual_device(session, dev, before);
    return fmt::format("devices 0 and 1 became device {}", dev);
  }
  int after = 0;
  session.must(session.net().devices(&after), "devices after makeVDevice");
  if (after != before) {
    fail_check(
        fmt::format("makeVDevice returned {}, and devices gives {} instead of {}", result_name(result), after, before));
  }
  Link link = session.link();
  exchange(session, link, 4096, 1);
  return fmt::format("refused ({}): NCCL goes on with the devices as they are", result_name(result));
}

std::string check_traffic_class(const Env& env) {
  if (env.version < 10) skip_check("v10 and later carry a traffic class");
  Session session(env);
  for (const int traffic_class : {nccl_abi::kTrafficClassUndefined, 0, 7, 105, 255}) {
    void* ctx = nullptr;
    note_step(fmt::format("initialising with traffic class {}", traffic_class));
    note_call("init");
    session.must(session.net().init(77, traffic_class, &ctx), "init with a traffic class");
    if (session.net().version() <= 10 || session.net().has_finalize())
      session.must(session.net().finalize(ctx), "finalize");
  }
  return "-1 (undefined), 0, 7, 105, 255 are all taken";
}

constexpr Check kChecks[] = {
    {"abi.tables", "The library exports ncclNetPlugin_vN; each NCCL release takes the newest version that it knows.",
     "plugin/net.cc:39, 90-102", false, check_tables},
    {"abi.symbol", "Each table is a data object and as large as the struct of its version.", "plugin/net/net_v11.cc",
     true, check_symbol},
    {"abi.slots",
     "Every call that NCCL makes without looking is there (optional: regMrDmaBuf, iflush, getDeviceMr, "
     "irecvConsumed, makeVDevice, setNetAttr).",
     "transport/net.cc:214, 963, 1614; plugin/net.cc:341", true, check_slots},
    {"abi.name", "The name is not empty and does not change: NCCL_NET and the log use it.", "plugin/net.cc:186, 289",
     true, check_name},
    {"abi.devices",
     "init succeeds and devices gives more than 0, the same each time; otherwise NCCL silently falls back to "
     "its own transport.",
     "plugin/net.cc:178-182", true, check_devices},
    {"abi.properties",
     "The properties are in range: maxP2pBytes and maxCollBytes in (0, 1 TiB], a known netDeviceType, "
     "NCCL_PTR_HOST, speed > 0.",
     "transport/net.cc:735, 773; plugin/net.cc:148", true, check_properties},
    {"abi.fusion",
     "makeVDevice makes one more device, whose vProps name its members, or it refuses and changes nothing.",
     "graph/topo.cc:1000-1031, 1262-1290, 1373-1395", true, check_fusion},
    {"abi.init_repeated", "init is called for every communicator; finalizing one leaves the others working.",
     "plugin/net.cc:174-178, 341", true, check_init_repeated},
    {"abi.finalize_null", "finalize takes ctx NULL: NCCL calls it also after an init that failed.", "plugin/net.cc:226",
     true, check_finalize_null},
    {"abi.traffic_class", "A traffic class is a hint, undefined (-1) or any number; init does not fail over it.",
     "plugin/net.cc:176-178", false, check_traffic_class},
};

}  // namespace

std::span<const Check> abi_checks() { return kChecks; }

}  // namespace clustar::bench::conform
