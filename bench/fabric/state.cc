#include "bench/fabric/state.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "bench/fabric/delay/forwarder.h"
#include "bench/fabric/owner.h"

namespace clustar::bench::fabric {
namespace {

constexpr const char* kFolder = "/run/clustar";
constexpr auto kLockBound = std::chrono::seconds(30);

// The folder goes when its last file goes; a process that locked it by then must look again.
bool is_still_the_folder(int fd) {
  struct stat opened {};
  struct stat named {};
  return fstat(fd, &opened) == 0 && stat(kFolder, &named) == 0 && opened.st_ino == named.st_ino &&
         opened.st_dev == named.st_dev;
}

}  // namespace

Result<StateLock> StateLock::take(Mode mode, const HeldSignals* signals) {
  const auto until = std::chrono::steady_clock::now() + kLockBound;
  while (true) {
    if (mkdir(kFolder, 0755) != 0 && errno != EEXIST) {
      return fail(ErrorCode::kSystem, fmt::format("cannot make {}: {}", kFolder, std::strerror(errno)));
    }
    const int fd = open(kFolder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 && errno != ENOENT) {
      return fail(ErrorCode::kSystem, fmt::format("cannot open {}: {}", kFolder, std::strerror(errno)));
    }
    if (fd >= 0) {
      if (flock(fd, (mode == Mode::kChange ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 && is_still_the_folder(fd)) {
        return StateLock(fd, mode);
      }
      close(fd);
    }
    if (signals != nullptr && signals->interrupted()) return fail(ErrorCode::kSystem, "interrupted");
    if (std::chrono::steady_clock::now() > until) {
      return fail(ErrorCode::kUnavailable,
                  fmt::format("another clustar fabric command has held the lock on {} for {} s; wait for it or end it",
                              kFolder, kLockBound.count()));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

StateLock::~StateLock() {
  if (fd_ < 0) return;
  // The folder goes when it is empty, and never under somebody else who only looks.
  if (mode_ == Mode::kChange || flock(fd_, LOCK_EX | LOCK_NB) == 0) rmdir(kFolder);
  close(fd_);
}

std::string state_path(const std::string& fabric) { return fmt::format("{}/fabric-{}.json", kFolder, fabric); }

Result<void> write_state(const FabricSpec& spec, bool takes_over) {
  nlohmann::json state = {{"version", CLUSTAR_VERSION},
                          {"name", spec.name},
                          {"hosts", spec.hosts},
                          {"rate_bps", spec.rate_bps},
                          {"mtu", spec.mtu},
                          {"buffer_bytes", spec.buffer_bytes},
                          {"delay_ns", spec.delay_ns},
                          {"spines", spec.spines},
                          {"leaves", spec.leaves},
                          {"uplink_rate_bps", spec.uplink_rate_bps},
                          {"uplink_buffer_bytes", spec.uplink_buffer_bytes},
                          {"switches", spec.switches},
                          {"links", nlohmann::json::array()}};
  state["owner"] = to_json(takes_over ? caller() : owner_of(spec.name).value_or(caller()));
  for (const LinkSpec& link : spec.links) {
    state["links"].push_back({link.a, link.b, link.rate_bps, link.buffer_bytes, link.mtu, link.delay_ns});
  }
  state["rules"] = nlohmann::json::object();
  for (const auto& [port, own] : spec.rules.ports) state["rules"][port] = to_json(own);
  const std::string path = state_path(spec.name);
  const std::string fresh = path + ".new";
  std::ofstream out(fresh);
  out << state.dump(2) << "\n";
  out.close();
  if (!out || std::rename(fresh.c_str(), path.c_str()) != 0) {
    const int why = errno;
    unlink(fresh.c_str());
    return fail(ErrorCode::kSystem, fmt::format("cannot write {} (is /run full?): {}", path, std::strerror(why)));
  }
  return {};
}

std::optional<FabricSpec> read_state(const std::string& fabric) {
  std::ifstream in(state_path(fabric));
  const auto state = nlohmann::json::parse(in, nullptr, false);
  if (!state.is_object()) return std::nullopt;
  try {
    FabricSpec spec;
    spec.name = fabric;
    spec.hosts = state.at("hosts").get<int>();
    spec.rate_bps = state.at("rate_bps").get<std::uint64_t>();
    spec.mtu = state.at("mtu").get<int>();
    spec.buffer_bytes = state.at("buffer_bytes").get<std::uint64_t>();
    spec.delay_ns = state.at("delay_ns").get<std::uint64_t>();
    spec.spines = state.at("spines").get<int>();
    spec.leaves = state.at("leaves").get<int>();
    spec.uplink_rate_bps = state.at("uplink_rate_bps").get<std::uint64_t>();
    spec.uplink_buffer_bytes = state.at("uplink_buffer_bytes").get<std::uint64_t>();
    spec.switches = state.at("switches").get<std::vector<std::string>>();
    for (const auto& link : state.at("links")) {
      spec.links.push_back({link.at(0).get<std::string>(), link.at(1).get<std::string>(),
                            link.at(2).get<std::uint64_t>(), link.at(3).get<std::uint64_t>(), link.at(4).get<int>(),
                            link.at(5).get<std::uint64_t>()});
    }
    const nlohmann::json all = state.value("rules", nlohmann::json::object());
    for (const auto& [port, own] : all.items()) {
      const auto rules = rules_from_json(own);
      if (!rules) return std::nullopt;
      spec.rules.ports[port] = *rules;
    }
    return spec;
  } catch (const nlohmann::json::exception&) {
    return std::nullopt;
  }
}

bool remove_state(const std::string& fabric) {
  const std::string path = state_path(fabric);
  unlink((path + ".new").c_str());
  unlink(forwarder_file(fabric).c_str());
  return unlink(path.c_str()) == 0;
}

}  // namespace clustar::bench::fabric
