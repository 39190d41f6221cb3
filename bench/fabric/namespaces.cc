#include "bench/fabric/namespaces.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <thread>
#include <utility>

#include "bench/fabric/pidfd.h"
#include "bench/fabric/spec.h"

namespace clustar::bench::fabric {
namespace {

namespace fs = std::filesystem;
using FileId = std::pair<dev_t, ino_t>;

constexpr const char* kFolder = "/run/netns";
constexpr auto kGrace = std::chrono::seconds(2);

std::optional<FileId> file_id(const std::string& path) {
  struct stat found {};
  if (stat(path.c_str(), &found) != 0) return std::nullopt;
  return FileId{found.st_dev, found.st_ino};
}

std::map<FileId, std::string> ids_of(const std::vector<std::string>& names) {
  std::map<FileId, std::string> ids;
  for (const std::string& name : names) {
    const auto id = is_namespace(name) ? file_id(namespace_path(name)) : std::nullopt;
    if (id) ids[*id] = name;
  }
  return ids;
}

// The namespace of `ids` in which the process has a thread.
std::optional<std::string> where_is(const std::string& pid, const std::map<FileId, std::string>& ids) {
  std::error_code error;
  for (fs::directory_iterator task(fs::path("/proc") / pid / "task", error), end; !error && task != end;
       task.increment(error)) {
    const auto id = file_id((task->path() / "ns" / "net").string());
    const auto found = id ? ids.find(*id) : ids.end();
    if (found != ids.end()) return found->second;
  }
  return std::nullopt;
}

std::string errno_text() { return std::strerror(errno); }

}  // namespace

std::optional<NamespaceName> parse_namespace(const std::string& name) {
  constexpr std::string_view kPrefix = "clustar-";
  const std::size_t last = name.rfind('-');
  if (!name.starts_with(kPrefix) || last < kPrefix.size()) return std::nullopt;
  NamespaceName parsed;
  parsed.fabric = name.substr(kPrefix.size(), last - kPrefix.size());
  if (!check_name(parsed.fabric)) return std::nullopt;
  parsed.node = name.substr(last + 1);
  parsed.host = host_number(parsed.node);
  if (parsed.host >= 0 || parsed.node == "wire" || check_switch_name(parsed.node)) return parsed;
  return std::nullopt;
}

std::string namespace_path(const std::string& name) { return fmt::format("{}/{}", kFolder, name); }

bool is_namespace(const std::string& name) {
  struct statfs found {};
  return statfs(namespace_path(name).c_str(), &found) == 0 && found.f_type == NSFS_MAGIC;
}

std::vector<std::string> namespaces_of(const std::string& fabric) {
  std::vector<std::pair<NamespaceName, std::string>> found;
  std::error_code error;
  for (fs::directory_iterator entry(kFolder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    const auto parsed = parse_namespace(name);
    if (parsed && (fabric.empty() || parsed->fabric == fabric)) found.emplace_back(*parsed, name);
  }
  std::sort(found.begin(), found.end(), [](const auto& a, const auto& b) {
    return std::pair(a.first.fabric, node_rank(a.first.node)) < std::pair(b.first.fabric, node_rank(b.first.node));
  });
  std::vector<std::string> names;
  for (const auto& [parsed, name] : found) names.push_back(name);
  return names;
}

std::vector<std::string> fabric_names() {
  std::set<std::string> names;
  for (const std::string& name : namespaces_of("")) names.insert(parse_namespace(name)->fabric);
  return {names.begin(), names.end()};
}

Result<void> enter_namespace(const std::string& name) {
  const int fd = open(namespace_path(name).c_str(), O_RDONLY | O_CLOEXEC);
  const bool entered = fd >= 0 && setns(fd, CLONE_NEWNET) == 0;
  const std::string why = errno_text();
  if (fd >= 0) close(fd);
  if (entered) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot enter the network namespace {}: {}", name, why));
}

Result<void> enter_namespace_with_sys(const std::string& name) {
  if (const auto entered = enter_namespace(name); !entered) return entered;
  // The mounts are this process's own from here on: outside, /sys stays what it is.
  if (unshare(CLONE_NEWNS) == 0 && mount("", "/", "none", MS_SLAVE | MS_REC, nullptr) == 0) {
    umount2("/sys", MNT_DETACH);
    if (mount("sysfs", "/sys", "sysfs", 0, nullptr) == 0) return {};
  }
  return fail(ErrorCode::kSystem, fmt::format("cannot mount a /sys that shows {}: {}", name, errno_text()));
}

Result<void> run_inside(const std::string& name, const std::function<Result<void>()>& body) {
  Result<void> result;
  std::thread thread([&] {
    try {
      result = enter_namespace(name);
      if (result) result = body();
    } catch (const std::exception& error) {
      result = fail(ErrorCode::kInternal, fmt::format("inside {}: {}", name, error.what()));
    }
  });
  thread.join();
  return result;
}

std::vector<Inhabitant> inhabitants(const std::vector<std::string>& names) {
  std::vector<Inhabitant> found;
  const auto ids = ids_of(names);
  if (ids.empty()) return found;
  std::error_code error;
  for (fs::directory_iterator entry("/proc", error), end; !error && entry != end; entry.increment(error)) {
    const std::string pid = entry->path().filename().string();
    if (pid.find_first_not_of("0123456789") != std::string::npos || pid == std::to_string(getpid())) continue;
    const auto where = where_is(pid, ids);
    if (!where) continue;
    Inhabitant inhabitant{static_cast<pid_t>(std::stol(pid)), {}, *where};
    std::ifstream in(entry->path() / "comm");
    std::getline(in, inhabitant.command);
    found.push_back(inhabitant);
  }
  return found;
}

std::string to_string(const std::vector<Inhabitant>& found) {
  std::string text =
      found.size() == 1 ? "1 process runs there: " : fmt::format("{} processes run there: ", found.size());
  for (std::size_t i = 0; i < found.size() && i < 5; ++i) {
    const Inhabitant& one = found[i];
    const std::string host = one.where.substr(one.where.rfind('-') + 1);
    text += fmt::format("{}{} (pid {}, {})", i == 0 ? "" : ", ", one.command, one.pid, host);
  }
  return text + (found.size() > 5 ? ", ..." : "");
}

bool caller_is_inside(const std::vector<std::string>& names) {
  const auto ids = ids_of(names);
  for (const char* own : {"/proc/thread-self/ns/net", "/proc/self/ns/net"}) {
    const auto id = file_id(own);
    if (id && ids.count(*id) > 0) return true;
  }
  return false;
}

Result<std::vector<Inhabitant>> end_inhabitants(const std::vector<std::string>& names) {
  std::vector<Inhabitant> ended;
  for (const int signal : {SIGTERM, SIGKILL}) {
    const auto until = std::chrono::steady_clock::now() + kGrace;
    // Again and again: those who are inside may start others while we look.
    while (true) {
      const std::vector<Inhabitant> found = inhabitants(names);
      if (found.empty()) return ended;
      if (std::chrono::steady_clock::now() > until) break;
      for (const Inhabitant& one : found) {
        const bool is_new = std::none_of(ended.begin(), ended.end(), [&](const auto& e) { return e.pid == one.pid; });
        if (is_new) ended.push_back(one);
        if (!is_new && signal == SIGTERM) continue;  // has been asked
        // The descriptor pins the process, so that its number cannot pass to a stranger between look and signal.
        const int fd = open_pidfd(one.pid);
        if (fd < 0) continue;
        if (where_is(std::to_string(one.pid), ids_of(names))) signal_pidfd(fd, signal);
        close(fd);
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  const std::vector<Inhabitant> left = inhabitants(names);
  if (left.empty()) return ended;
  return fail(ErrorCode::kSystem, fmt::format("{}; even SIGKILL does not end them", to_string(left)));
}

Result<void> remove_namespace(const std::string& name) {
  const std::string path = namespace_path(name);
  // A bare file has nothing to unmount (EINVAL); whatever was mounted more than once goes one by one.
  while (umount2(path.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW) == 0) {
  }
  if (unlink(path.c_str()) == 0 || errno == ENOENT) return {};
  return fail(ErrorCode::kSystem, fmt::format("cannot remove {}: {}", path, errno_text()));
}

}  // namespace clustar::bench::fabric
