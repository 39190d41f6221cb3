#include "bench/trainer/launcher_place.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>

namespace clustar::bench::trainer {
namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
};
// An outer launcher's variables reach what an inner one starts, so inner ones are first.
constexpr Launcher kTorchrun{"torchrun", "RANK", "WORLD_SIZE"};
constexpr Launcher kSrun{"srun", "SLURM_PROCID", "SLURM_NTASKS"};
constexpr std::array<Launcher, 4> kLaunchers{{kTorchrun,
                                              {"OpenMPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
                                              {"PMI", "PMI_RANK", "PMI_SIZE"},
                                              kSrun}};
constexpr int kLastPort = 65535;

Result<int> number(const char* name, const std::string& text) {
  int value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value >= 0) return value;
  return fail(ErrorCode::kInvalidArgument, fmt::format("--launcher env: {}='{}' is no number from 0 on", name, text));
}

std::string or_empty(const char* text) { return text != nullptr ? text : ""; }

Result<std::string> root_of(const ReadVariable& read) {
  const std::string host = or_empty(read("MASTER_ADDR"));
  const std::string port = or_empty(read("MASTER_PORT"));
  if (host.empty() || port.empty()) {
    return fail(ErrorCode::kInvalidArgument,
                "--launcher env: nothing says where rank 0 listens; give --root HOST:PORT, or set MASTER_ADDR and "
                "MASTER_PORT on every rank (mpirun -x MASTER_ADDR=HOST -x MASTER_PORT=29500 ...)");
  }
  const auto value = number("MASTER_PORT", port);
  if (!value) return tl::unexpected(value.error());
  // torch.distributed.elastic: the agent's store has that port already.
  const int more = or_empty(read("TORCHELASTIC_USE_AGENT_STORE")) == "True" ? 1 : 0;
  if (*value < 1 || *value > kLastPort - more) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--launcher env: MASTER_PORT={}; allowed: 1 to {}{}", *value, kLastPort - more,
                            more == 0 ? "" : ", as rank 0 listens at the next port beside torchrun's own store"));
  }
  const bool bare = host.find(':') != std::string::npos && host.front() != '[';
  return fmt::format("{}:{}", bare ? "[" + host + "]" : host, *value + more);
}

bool is_complete(const Launcher& one, const ReadVariable& read) {
  return read(one.rank) != nullptr && read(one.size) != nullptr;
}

// What an inner launcher starts inherits srun's variables, also those of an allocation or of a shell in it. Anybody may
// set RANK and WORLD_SIZE; torchrun sets more.
bool hides(const Launcher& inner, const Launcher& outer, const ReadVariable& read) {
  if (std::string_view(outer.name) != kSrun.name) return false;
  return std::string_view(inner.name) != kTorchrun.name ||
         (read("LOCAL_RANK") != nullptr && read("TORCHELASTIC_RUN_ID") != nullptr);
}

// Two that disagree: one is a remnant, and by the wrong one each rank would train alone.
Result<void> check_alone(const Launcher& taken, const ReadVariable& read) {
  for (const Launcher& other : kLaunchers) {
    if (!is_complete(other, read) || hides(taken, other, read)) continue;
    if (std::string_view(read(other.rank)) == read(taken.rank) &&
        std::string_view(read(other.size)) == read(taken.size)) {
      continue;
    }
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("--launcher env: {}={} and {}={} ({}) contradict {}={} and {}={} ({}); unset those of the "
                            "one that did not start this process (env -u {} -u {} ...), or give --rank, --size and "
                            "--root",
                            taken.rank, read(taken.rank), taken.size, read(taken.size), taken.name, other.rank,
                            read(other.rank), other.size, read(other.size), other.name, taken.rank, taken.size));
  }
  return {};
}

Result<const Launcher*> launcher_of(const ReadVariable& read) {
  std::string known;
  for (const Launcher& one : kLaunchers) {
    if (is_complete(one, read)) {
      if (auto alone = check_alone(one, read); !alone) return tl::unexpected(alone.error());
      return &one;
    }
    if (read(one.rank) != nullptr) {
      return fail(
          ErrorCode::kInvalidArgument,
          fmt::format("--launcher env: {} is set and {} is not, which {} sets, too", one.rank, one.size, one.name));
    }
    known += fmt::format("{}{} and {} ({})", known.empty() ? "" : ", ", one.rank, one.size, one.name);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      fmt::format("--launcher env: no launcher started this process, or its variables did not come through. One "
                  "of these pairs is needed: {}; or --rank, --size and --root",
                  known));
}

}  // namespace

Result<LauncherPlace> place_by_launcher(const ReadVariable& read, const std::string& root) {
  const auto launcher = launcher_of(read);
  if (!launcher) return tl::unexpected(launcher.error());
  const auto rank = number((*launcher)->rank, read((*launcher)->rank));
  if (!rank) return tl::unexpected(rank.error());
  const auto size = number((*launcher)->size, read((*launcher)->size));
  if (!size) return tl::unexpected(size.error());
  if (*rank >= *size) {
    return fail(ErrorCode::kInvalidArgument, fmt::format("--launcher env: {}={} does not exist among {}={}",
                                                         (*launcher)->rank, *rank, (*launcher)->size, *size));
  }
  LauncherPlace place{.launcher = (*launcher)->name, .rank = *rank, .size = *size, .root = root};
  if (!root.empty() || *size == 1) return place;
  const auto found = root_of(read);
  if (!found) return tl::unexpected(found.error());
  place.root = *found;
  return place;
}

nlohmann::json place_record(int rank) {
  utsname machine{};
  struct stat network {};
  const bool named = uname(&machine) == 0;
  const bool found = stat("/proc/self/ns/net", &network) == 0;
  return {{"place",
           {{"rank", rank}, {"host", named ? machine.nodename : ""}, {"network", found ? network.st_ino : ino_t{0}}}}};
}

}  // namespace clustar::bench::trainer
