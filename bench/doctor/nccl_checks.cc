#include "bench/doctor/nccl_checks.h"

#include <fmt/format.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>

#include "bench/doctor/nccl_names.h"

namespace clustar::bench::doctor {
namespace {

std::string folder_of(const std::string& path) { return path.substr(0, path.rfind('/')); }

std::string set_path(const NcclFacts& facts) {
  return facts.beside.empty() ? "NCCL_NET_PLUGIN=/path/to/libnccl-net-clustar.so" : "NCCL_NET_PLUGIN=" + facts.beside;
}

// For checks that bear the variable's name.
std::string value(const NcclVariables& variables, const char* name) {
  const auto at = variables.all().find(name);
  if (at == variables.all().end()) return "not set";
  return fmt::format("'{}'{}", at->second.text,
                     at->second.source == "environment" ? "" : " (" + at->second.source + ")");
}
// For those that do not.
std::string shown(const NcclVariables& variables, const char* name) {
  return fmt::format("{} is {}", name, value(variables, name));
}

// Of ours, whose path a role may be given.
std::string own_path(const NcclFacts& facts) {
  const Search* const chosen = facts.chosen();
  if (chosen != nullptr && chosen->clustar) return chosen->path;
  return facts.beside.empty() ? "the plugin's path" : facts.beside;
}

Check check_variable(const NcclFacts& facts) {
  const char* const name = variable_of(Role::kNet);
  const auto plugin = facts.variables.get(name);
  if (takes_none(plugin)) {
    return failed(name, value(facts.variables, name) + ": NCCL takes no external plugin",
                  "export NCCL_NET_PLUGIN=clustar");
  }
  if (!plugin) {
    const bool ours = facts.fallback.usable() && facts.fallback.clustar;
    return ours ? ok(name, "not set; libnccl-net.so, which NCCL looks for then, is clustar")
                : failed(name, "not set: NCCL looks for libnccl-net.so", "export NCCL_NET_PLUGIN=clustar");
  }
  return ok(name, value(facts.variables, name));
}

// `missing`: also of names under which there is no file.
std::string refusals_of(const Search& search, bool missing) {
  std::string text;
  for (const Tried& one : search.tried) {
    const bool absent = one.error == one.name + ": cannot open shared object file: No such file or directory";
    if (!one.error.empty() && (missing || !absent)) text += (text.empty() ? "" : "; ") + one.error;
  }
  return text;
}

// The one that keeps NCCL from the plugin.
Check check_entry(const NcclFacts& facts, const Search& one) {
  const std::string name = "plugin " + (one.entry.empty() ? "libnccl-net.so" : one.entry);
  if (is_static_plugin(one.entry)) {
    return failed(name, "NCCL takes this for a plugin linked into the program", "a longer name, or " + set_path(facts));
  }
  if (!one.died.empty()) {
    return failed(name, "opening it ended the process: " + one.died, "a whole file: copy or build it again");
  }
  if (!one.path.empty() && one.versions.empty()) {
    return failed(name, one.path + " exports no ncclNetPlugin_v<N>, so it is no net plugin", set_path(facts));
  }
  if (!one.path.empty()) return ok(name, one.path);
  if (!one.file.empty()) {
    return failed(name, one.file + " cannot be opened: " + refusals_of(one, false),
                  "what the loader names; then this again");
  }
  std::string fix = set_path(facts);
  if (!facts.beside.empty() && one.entry == "clustar") {
    fix = fmt::format("export LD_LIBRARY_PATH={}:$LD_LIBRARY_PATH, or {}", folder_of(facts.beside), fix);
  }
  return failed(name, "not found: " + refusals_of(one, true), fix);
}

std::string numbers(const std::vector<int>& versions) {
  std::string text;
  for (const int version : versions) text += fmt::format("{}v{}", text.empty() ? "" : ", ", version);
  return text;
}

void check_whose(const NcclFacts& facts, std::vector<Check>& checks) {
  const Search* const chosen = facts.chosen();
  if (chosen == nullptr) return;
  if (!chosen->clustar) {
    checks.push_back(failed(
        "whose", fmt::format("{} comes first, and it is the plugin '{}', not clustar", chosen->path, chosen->name),
        set_path(facts) + ", or NCCL_NET=clustar if clustar is in the list, too"));
    return;
  }
  checks.push_back(ok("whose", fmt::format("clustar, net tables {}", numbers(chosen->versions))));
}

Check check_net(const NcclFacts& facts) {
  const auto wanted = facts.variables.get("NCCL_NET");
  if (!wanted) {
    return warning("NCCL_NET", "not set: where the plugin is not found or fails, NCCL takes another network in silence",
                   "export NCCL_NET=clustar");
  }
  if (strcasecmp(wanted->c_str(), "clustar") == 0) return ok("NCCL_NET", value(facts.variables, "NCCL_NET"));
  return failed("NCCL_NET", value(facts.variables, "NCCL_NET") + ": NCCL takes the network of that name only",
                "export NCCL_NET=clustar");
}

Check check_fallback(const NcclFacts& facts) {
  const char* const name = "libnccl-net.so";
  if (facts.fallback.path.empty()) return ok(name, "none is there that NCCL could take instead");
  if (facts.fallback.clustar) return ok(name, facts.fallback.path + " is clustar, too");
  return warning(name,
                 fmt::format("{} ('{}') is taken by every process in which NCCL_NET_PLUGIN is not set",
                             facts.fallback.path, facts.fallback.name),
                 "set NCCL_NET_PLUGIN and NCCL_NET=clustar on all ranks");
}

Check check_strays(const NcclFacts& facts) {
  std::vector<std::string> same_name;
  for (const std::string& stray : facts.strays) {
    if (stray.ends_with("/libnccl-net-clustar.so")) same_name.push_back(stray);
  }
  const Search* const chosen = facts.chosen();
  const bool taken = chosen != nullptr && chosen->clustar;
  if (same_name.size() + (taken ? 1 : 0) < 2)
    return ok("copies", "no second libnccl-net-clustar.so in LD_LIBRARY_PATH");
  return warning("copies",
                 fmt::format("there is more than one: {}; taken is {}", fmt::join(same_name, ", "),
                             chosen == nullptr ? "none" : chosen->path),
                 "remove the others, or " + set_path(facts));
}

Check check_role(const NcclFacts& facts, Role role, const Search& search, const std::string& what) {
  const char* const name = variable_of(role);
  const auto plugin = facts.variables.get(name);
  if (plugin && strcasecmp(plugin->c_str(), "none") == 0) {
    return warning(name, value(facts.variables, name) + ": " + what, std::string("unset ") + name);
  }
  if (!search.died.empty()) {
    return failed(name, "opening it ended the process: " + search.died, std::string("unset ") + name);
  }
  if (search.usable() && search.clustar) return ok(name, value(facts.variables, name) + ": " + search.path);
  if (!search.path.empty()) {
    return warning(name, fmt::format("NCCL takes {} for it: {}", search.path, what),
                   fmt::format("{}={}", name, own_path(facts)) +
                       (role == Role::kProfiler ? "; CLUSTAR_CHAIN_PROFILER hands all events on to the other" : ""));
  }
  return ok(name, value(facts.variables, name) + "; no other is found, so NCCL takes the one in the net plugin's file");
}

bool tuner_is_ours(const NcclFacts& facts) {
  const auto plugin = facts.variables.get(variable_of(Role::kTuner));
  if (plugin && strcasecmp(plugin->c_str(), "none") == 0) return false;
  return facts.tuner.path.empty() || facts.tuner.clustar;
}

Check check_ll128(const NcclFacts& facts) {
  const auto& lines = facts.banner.lines;
  const bool ordered = std::none_of(lines.begin(), lines.end(), [](const BannerLine& line) {
    return line.text.find("no order of 128-byte lines") != std::string::npos;
  });
  const std::string transport = transport_of(facts.banner);
  if (ordered && !transport.empty()) return ok("LL128", transport + " keeps the order of 128-byte lines");
  const auto proto = facts.variables.get("NCCL_PROTO");
  const auto allowed = proto ? allows_ll128(*proto) : std::optional<bool>(true);
  if (!allowed) {
    return warning(
        "LL128", shown(facts.variables, "NCCL_PROTO") + ", which is not judged here; this transport cannot carry LL128",
        "exclude LL128 for every collective, or export NCCL_PROTO=^LL128");
  }
  if (!*allowed) return ok("LL128", shown(facts.variables, "NCCL_PROTO") + ", which excludes it");
  if (proto && strcasecmp(proto->c_str(), "LL128") == 0) {
    return failed("LL128", "NCCL_PROTO is 'LL128', which allows nothing else, and this transport cannot carry it",
                  "export NCCL_PROTO=^LL128");
  }
  if (tuner_is_ours(facts)) return ok("LL128", "the tuner forbids it, because this transport cannot carry it");
  return failed("LL128", "this transport cannot carry it, and no tuner of ours forbids it: wrong results, or a hang",
                "export NCCL_PROTO=^LL128");
}

Check check_ref_count(const NcclFacts& facts) {
  const char* const name = "NCCL_NET_PLUGIN_REF_COUNT";
  const auto count = facts.variables.get(name);
  if (count && std::strtoll(count->c_str(), nullptr, 0) > 0) return ok(name, value(facts.variables, name));
  return warning(name,
                 value(facts.variables, name) +
                     ": NCCL 2.28.9 to 2.29.7 forget the plugin's name with the last communicator (nccl#1978)",
                 "export NCCL_NET_PLUGIN_REF_COUNT=1; a process that keeps one communicator does not need it");
}

Check check_glibc(const NcclFacts& facts) {
  if (!facts.needed_unknown.empty()) {
    return warning(
        "glibc",
        fmt::format("{} is here; what the plugin needs is unknown: {}", to_string(facts.glibc), facts.needed_unknown),
        "a whole file that can be read: copy or build it again");
  }
  if (!facts.needed) return ok("glibc", to_string(facts.glibc) + "; no plugin was found to ask what it needs");
  const std::string evidence =
      fmt::format("{} is here, the plugin needs {}", to_string(facts.glibc), to_string(*facts.needed));
  if (*facts.needed <= facts.glibc) return ok("glibc", evidence);
  return failed("glibc", evidence, "a newer container or system, or build the plugin on this one");
}

void check_transport(const NcclFacts& facts, std::vector<Check>& checks) {
  const Banner& banner = facts.banner;
  if (banner.path.empty()) return;
  std::string warnings;
  for (const BannerLine& line : banner.lines) {
    if (line.warning) warnings += (warnings.empty() ? "" : "; ") + line.text;
  }
  const std::string transport = transport_of(banner);
  if (!banner.failure.empty() || transport.empty()) {
    const std::string what = banner.failure + (banner.failure.empty() || warnings.empty() ? "" : ": ") + warnings;
    checks.push_back(failed("transport", what.empty() ? "the plugin does not say which transport it took" : what,
                            "what the sentence names; clustar settings explains each setting"));
    return;
  }
  const auto asked = facts.variables.get("CLUSTAR_TRANSPORT");
  checks.push_back(ok("transport", fmt::format("{}{}, {} device{}", transport,
                                               asked.value_or("auto") == "auto" ? ", chosen by auto" : "",
                                               banner.devices.size(), banner.devices.size() == 1 ? "" : "s")));
  if (!warnings.empty()) checks.push_back(warning("banner", warnings, "what the sentence names"));
}

void check_verbs(const NcclFacts& facts, std::vector<Check>& checks) {
  if (facts.rdma_devices.empty()) return;
  constexpr std::uint64_t kMib = 1 << 20;
  if (!facts.memlock_bytes) {
    checks.push_back(ok("memlock", "this process may lock what it wants"));
  } else {
    checks.push_back(Check{
        "memlock", *facts.memlock_bytes < 64 * kMib ? Outcome::kFailed : Outcome::kWarning,
        fmt::format("{} KiB may be locked, and RDMA NICs lock all memory that they use", *facts.memlock_bytes / 1024),
        "ulimit -l unlimited; docker: --ulimit memlock=-1; systemd: LimitMEMLOCK=infinity"});
  }
  const auto off = facts.variables.get("NCCL_IB_DISABLE");
  if (off && std::atoi(off->c_str()) != 0 && !facts.variables.get("CLUSTAR_IB_DISABLE")) {
    checks.push_back(warning(
        "NCCL_IB_DISABLE", value(facts.variables, "NCCL_IB_DISABLE") + " counts for clustar, too: no RDMA NIC is used",
        "CLUSTAR_IB_DISABLE=0 if it was meant for NCCL's own transport"));
  }
}

bool asks_for_libfabric(const NcclVariables& variables) {
  const std::string required = "|" + variables.get("CLUSTAR_REQUIRE").value_or("") + "|";
  return variables.get("CLUSTAR_TRANSPORT") == "ofi" || required.find("|ofi|") != std::string::npos;
}

// CLUSTAR_IO=ofi: MLT's packets need datagrams, which other providers have than reliable messages.
void check_datagrams(const OfiFacts& ofi, std::vector<Check>& checks) {
  const char* const name = "libfabric datagrams";
  if (!ofi.module) {
    checks.push_back(failed(name, "libclustar-ofi.so, which CLUSTAR_IO=ofi needs, is not beside the plugin",
                            "the module, built where libfabric-dev is; or another CLUSTAR_IO"));
  } else if (ofi.datagrams.empty()) {
    checks.push_back(failed(name, ofi.why_datagrams, "what the sentence names; or another CLUSTAR_IO"));
  } else {
    checks.push_back(ok(name, fmt::format("CLUSTAR_IO=ofi takes {} ({})", ofi.datagrams, ofi.why_datagrams)));
  }
}

void check_libfabric(const NcclFacts& facts, std::vector<Check>& checks) {
  const char* const name = "libfabric";
  const OfiFacts& ofi = facts.ofi;
  const bool asked = asks_for_libfabric(facts.variables);
  const std::string forced = facts.variables.get("CLUSTAR_OFI_PROVIDER").value_or("");
  const std::string provider = shown(facts.variables, "CLUSTAR_OFI_PROVIDER");
  if (facts.variables.get("CLUSTAR_IO") == "ofi") {
    check_datagrams(ofi, checks);
    if (!asked) return;
  }
  if (!ofi.module) {
    const std::string lacks = "libclustar-ofi.so, which libfabric needs, is not beside the plugin";
    const char* const fix = "the module, built where libfabric-dev is; or another CLUSTAR_TRANSPORT";
    if (asked) return checks.push_back(failed(name, lacks, fix));
    if (!forced.empty()) checks.push_back(warning(name, provider + ", but " + lacks, fix));
    return;
  }
  if (ofi.taken.empty()) {
    const std::string found = ofi.there.empty() ? ofi.why : ofi.there + "; " + ofi.why;
    std::string fix = "what the sentence names; or another CLUSTAR_TRANSPORT";
    if (!forced.empty() && !ofi.there.empty())
      fix = "unset CLUSTAR_OFI_PROVIDER, or one of these; FI_PROVIDER hides others";
    if (asked) return checks.push_back(failed(name, found, fix));
    if (!forced.empty()) return checks.push_back(warning(name, found, fix));
    return checks.push_back(ok(name, found + " (only CLUSTAR_TRANSPORT=ofi needs it)"));
  }
  const std::string found = fmt::format("{}; CLUSTAR_TRANSPORT=ofi {} {} ({})", ofi.there,
                                        asked ? "takes" : "would take", ofi.taken, ofi.why);
  if (asked && ofi.taken == "shm") {
    return checks.push_back(warning(name, found + ", which reaches this host only",
                                    "unset CLUSTAR_OFI_PROVIDER where ranks are on several hosts"));
  }
  if (!asked && !forced.empty()) {
    return checks.push_back(warning(name, found + "; " + provider + ", which does not count without it",
                                    "CLUSTAR_TRANSPORT=ofi, or unset CLUSTAR_OFI_PROVIDER"));
  }
  checks.push_back(ok(name, found));
}

Check check_debug(const NcclFacts& facts) {
  const auto level = facts.variables.get("NCCL_DEBUG");
  const auto parts = facts.variables.get("NCCL_DEBUG_SUBSYS");
  const bool shows = level && (strcasecmp(level->c_str(), "INFO") == 0 || strcasecmp(level->c_str(), "TRACE") == 0);
  return ok("NCCL_DEBUG", shows ? value(facts.variables, "NCCL_DEBUG") +
                                      (parts ? ", " + shown(facts.variables, "NCCL_DEBUG_SUBSYS") : "")
                                : value(facts.variables, "NCCL_DEBUG") + ": NCCL's log has the banner with INFO only");
}

// The word of the banner's first line behind `before`, up to one of `ends`.
std::string word_behind(const Banner& banner, const std::string& before, const char* ends) {
  for (const BannerLine& line : banner.lines) {
    const std::size_t at = line.text.find(before);
    if (line.warning || at == std::string::npos || line.text.find(": transport ") == std::string::npos) continue;
    const std::size_t from = at + before.size();
    return line.text.substr(from, line.text.find_first_of(ends, from) - from);
  }
  return {};
}

}  // namespace

std::string transport_of(const Banner& banner) { return word_behind(banner, ": transport ", ", "); }
std::string version_of(const Banner& banner) { return word_behind(banner, "clustar ", ": "); }

std::vector<Check> nccl_checks(const NcclFacts& facts) {
  std::vector<Check> checks = {check_variable(facts)};
  // Those before the chosen one are passed over by NCCL, those behind it not looked at.
  for (const Search& one : facts.net) {
    Check check = check_entry(facts, one);
    if (check.outcome == Outcome::kFailed && facts.chosen() != nullptr) check.outcome = Outcome::kWarning;
    checks.push_back(std::move(check));
    if (&one == facts.chosen()) break;
  }
  check_whose(facts, checks);
  checks.push_back(check_net(facts));
  checks.push_back(check_fallback(facts));
  checks.push_back(check_strays(facts));
  checks.push_back(check_glibc(facts));
  check_transport(facts, checks);
  checks.push_back(check_role(facts, Role::kProfiler, facts.profiler,
                              "clustar does not learn which collective a message is of, so nothing may be lost"));
  checks.push_back(check_role(facts, Role::kTuner, facts.tuner, "clustar does not forbid LL128"));
  checks.push_back(check_ll128(facts));
  checks.push_back(check_ref_count(facts));
  check_verbs(facts, checks);
  check_libfabric(facts, checks);
  checks.push_back(check_debug(facts));
  for (const std::string& line : facts.variables.unread()) {
    checks.push_back(warning("nccl.conf", line, "NCCL_CONF_FILE names a file with a NAME=value in each line"));
  }
  for (const std::string& line : facts.variables.overruled()) {
    checks.push_back(warning("nccl.conf", line, "remove one of the two"));
  }
  return checks;
}

}  // namespace clustar::bench::doctor
