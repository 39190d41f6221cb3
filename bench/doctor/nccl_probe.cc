#include "bench/doctor/nccl_probe.h"

#include <dlfcn.h>
#include <fmt/format.h>
#include <link.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/doctor/child.h"
#include "bench/proxy/net_plugin.h"

namespace clustar::bench::doctor {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLimit{20};  // a plugin may wait for a device

struct Tables {
  const char* prefix;
  int newest;
  int oldest;
};

// Of NCCL 2.19 to 2.30.
Tables tables_of(Role role) {
  if (role == Role::kNet) return {"ncclNetPlugin_v", 12, 5};
  return role == Role::kProfiler ? Tables{"ncclProfiler_v", 6, 1} : Tables{"ncclTunerPlugin_v", 6, 2};
}

bool write_all(int fd, const std::string& text) {
  for (std::size_t at = 0; at < text.size();) {
    const ssize_t n = write(fd, text.data() + at, text.size() - at);
    if (n <= 0) return false;
    at += static_cast<std::size_t>(n);
  }
  return true;
}

// The GNU build id among a loaded library's notes.
std::string build_id_of(const link_map* map) {
  std::string found;
  struct Asked {
    const link_map* map;
    std::string* found;
  } asked{map, &found};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        const Asked& want = *static_cast<Asked*>(data);
        if (info->dlpi_addr != want.map->l_addr) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& header = info->dlpi_phdr[i];
          if (header.p_type != PT_NOTE) continue;
          const auto* at = reinterpret_cast<const unsigned char*>(info->dlpi_addr + header.p_vaddr);
          const auto* const end = at + header.p_memsz;
          const auto rounded = [](std::size_t bytes) { return (bytes + 3) & ~std::size_t{3}; };
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            const auto& note = *reinterpret_cast<const ElfW(Nhdr)*>(at);
            const auto* const name = at + sizeof note;
            const auto* const value = name + rounded(note.n_namesz);
            if (value + note.n_descsz > end) break;
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4) {
              for (std::uint32_t b = 0; b < note.n_descsz; ++b) *want.found += fmt::format("{:02x}", value[b]);
              return 1;
            }
            at = value + rounded(note.n_descsz);
          }
        }
        return 1;
      },
      &asked);
  return found;
}

json opened(Role role, const std::string& name, void* library) {
  const link_map* map = nullptr;
  dlinfo(library, RTLD_DI_LINKMAP, &map);
  const Tables tables = tables_of(role);
  json versions = json::array();
  std::string shown;
  for (int version = tables.newest; version >= tables.oldest; --version) {
    const void* const table = dlsym(library, (tables.prefix + std::to_string(version)).c_str());
    if (table == nullptr) continue;
    const char* const first = *static_cast<const char* const*>(table);  // every table begins with its name
    if (versions.empty() && first != nullptr) shown = first;
    versions.push_back(version);
  }
  return {{"name", name},
          {"path", map == nullptr ? name : map->l_name},
          {"versions", versions},
          {"plugin_name", shown},
          {"clustar", dlsym(library, "clustarApi_v1") != nullptr},
          {"build_id", map == nullptr ? std::string() : build_id_of(map)}};
}

// The child's part: a line of JSON per name.
int open_in_turn(Role role, const std::vector<std::string>& names, int answer) {
  for (const std::string& name : names) {
    write_all(answer, json{{"opening", name}}.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
    void* const library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    const json line = library != nullptr ? opened(role, name, library) : json{{"name", name}, {"error", dlerror()}};
    write_all(answer, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
    if (library != nullptr) return 0;
  }
  return 0;
}

std::vector<json> lines_of(const std::string& text) {
  std::vector<json> lines;
  std::size_t at = 0;
  for (std::size_t end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    json line = json::parse(text.substr(at, end - at), nullptr, false);
    if (!line.is_discarded()) lines.push_back(std::move(line));
  }
  return lines;
}

// A file that NCCL would mean by one of the names.
std::string file_of(const std::vector<std::string>& names, const std::vector<std::string>& folders) {
  std::error_code error;
  for (const std::string& name : names) {
    if (name.find('/') != std::string::npos && std::filesystem::is_regular_file(name, error)) return name;
    if (name.find('/') != std::string::npos) continue;
    for (const std::string& folder : folders) {
      if (std::filesystem::is_regular_file(folder + "/" + name, error)) return folder + "/" + name;
    }
  }
  return {};
}

// The child's part: what the plugin logs, then how it went.
int begin_plugin(const std::string& path, const NcclVariables& variables, int answer) {
  // As NCCL does with what its files add.
  for (const auto& [name, value] : variables.all()) setenv(name.c_str(), value.text.c_str(), 0);
  const auto say = [&](const json& line) {
    write_all(answer, line.dump(-1, ' ', false, json::error_handler_t::replace) + "\n");
  };
  auto plugin = proxy::NetPlugin::open(path);
  if (!plugin) {
    say({{"failure", plugin.error().message}});
    return 0;
  }
  void* context = nullptr;
  int devices = 0;
  int result = (*plugin)->init(1, -1, &context);
  const char* call = "init";
  if (result == nccl_abi::kSuccess) {
    call = "devices";
    result = (*plugin)->devices(&devices);
  }
  for (const proxy::LogLine& line : (*plugin)->take_log()) {
    say({{"warning", line.level == nccl_abi::kLogWarn}, {"text", line.text}});
  }
  if (result != nccl_abi::kSuccess || devices <= 0) {
    say({{"failure", fmt::format("{} returned {}, and {} devices: NCCL takes another network in silence", call, result,
                                 devices)}});
    return 0;
  }
  for (int i = 0; i < devices; ++i) {
    proxy::NetProperties properties;
    if ((*plugin)->get_properties(i, &properties) != nccl_abi::kSuccess) continue;
    say({{"device", properties.name}});
  }
  return 0;
}

}  // namespace

Search search(Role role, const std::string& entry, const std::vector<std::string>& names,
              const std::vector<std::string>& folders) {
  Search found{.entry = entry};
  auto child = Child::start([&](int answer) { return open_in_turn(role, names, answer); });
  if (!child) {
    found.died = child.error().message;
    return found;
  }
  const Child::Ended ended = child->wait(std::chrono::steady_clock::now() + kLimit);
  std::string opening;
  for (const json& line : lines_of(ended.answer)) {
    if (line.contains("opening")) {
      opening = line["opening"];
      continue;
    }
    opening.clear();
    found.tried.push_back({line["name"], line.value("error", "")});
    if (!line.contains("path")) continue;
    found.path = line["path"];
    found.versions = line["versions"].get<std::vector<int>>();
    found.name = line["plugin_name"];
    found.clustar = line["clustar"];
    found.build_id = line["build_id"];
  }
  if (!ended.why.empty())
    found.died = fmt::format("{}: {}", opening.empty() ? "after it was opened" : opening, ended.why);
  if (found.path.empty()) found.file = file_of(names, folders);
  return found;
}

Banner ask_banner(const std::string& path, const NcclVariables& variables) {
  Banner banner{.path = path};
  auto child = Child::start([&](int answer) { return begin_plugin(path, variables, answer); });
  if (!child) {
    banner.failure = child.error().message;
    return banner;
  }
  const Child::Ended ended = child->wait(std::chrono::steady_clock::now() + kLimit);
  for (const json& line : lines_of(ended.answer)) {
    if (line.contains("failure")) banner.failure = line["failure"];
    if (line.contains("device")) banner.devices.push_back(line["device"]);
    if (line.contains("text")) banner.lines.push_back({line["warning"], line["text"]});
  }
  if (!ended.why.empty()) banner.failure = ended.why;
  return banner;
}

}  // namespace clustar::bench::doctor
