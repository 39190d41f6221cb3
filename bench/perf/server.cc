#include "bench/perf/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <chrono>
#include <list>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/perf/control.h"
#include "bench/perf/process.h"

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

std::string text_of(const std::map<std::string, std::string>& environment) {
  std::string text;
  for (const auto& [name, value] : environment) text += fmt::format("{}{}={}", text.empty() ? "" : ",", name, value);
  return text.empty() ? "nothing" : text;
}

// A transport of one name at both ends: otherwise the client would find out by an error in the middle, or not at all.
Result<std::optional<PluginSpec>> with_environment(const PluginSpec& spec, const json& hello, const char* option) {
  const auto asked = hello.value("environment", std::map<std::string, std::string>());
  if (asked == spec.environment) return std::optional(spec);
  return fail(ErrorCode::kInvalidUsage, fmt::format("the client's {} is {}, this server's {}; give both the same",
                                                    option, text_of(asked), text_of(spec.environment)));
}

// The plugin of the arm, none for a limit; or why not.
Result<std::optional<PluginSpec>> choose(const ServerOptions& options, const json& hello) try {
  if (hello.value("hello", "") != "clustar perf") {
    return fail(ErrorCode::kInvalidUsage, "the first line is not clustar perf's");
  }
  const std::string version = hello.value("version", "");
  if (version != CLUSTAR_VERSION) {
    return fail(
        ErrorCode::kInvalidUsage,
        fmt::format("the server is clustar {}, the client {}; use the same on both hosts", CLUSTAR_VERSION, version));
  }
  const std::string arm = hello.value("arm", "");
  if (arm == "A" && options.a) return with_environment(*options.a, hello, "--env");
  if (arm == "B" && options.b) return with_environment(*options.b, hello, "--vs-env");
  if (arm == "L" || arm == "U") return std::optional<PluginSpec>();
  return fail(ErrorCode::kInvalidUsage, fmt::format("no plugin for arm '{}' here; start the server with {}", arm,
                                                    arm == "B" ? "--vs" : "--plugin"));
} catch (const json::exception&) {
  return fail(ErrorCode::kInvalidUsage, "the client's first line makes no sense");
}

Result<Process> admit(const ServerOptions& options, FileDescriptor client) {
  const int raw = fcntl(client.fd(), F_DUPFD_CLOEXEC, 0);
  Control control(std::move(client));
  if (raw < 0) return fail(ErrorCode::kSystem, "out of descriptors");
  FileDescriptor passed_on(raw);
  json hello;
  const auto state = control.wait(&hello, std::chrono::steady_clock::now() + std::chrono::seconds(5));
  if (state != Control::State::kMessage)
    return fail(ErrorCode::kRemote, "a client said nothing that clustar perf says");
  auto plugin = choose(options, hello);
  if (!plugin) {
    (void)control.send(to_json(plugin.error()));
    return tl::unexpected(plugin.error());
  }
  // Before the receiver exists: it owns the connection from its first byte on.
  if (!control.send({{"ok", true}})) return fail(ErrorCode::kRemote, "the client is gone");
  return spawn_worker(options.executable, std::move(passed_on), *plugin);
}

}  // namespace

Result<void> serve(const ServerOptions& options, const std::atomic<bool>& stop,
                   const std::function<void(const std::string&)>& on_event) {
  auto listener = proxy::tcp_listen({options.bind, std::to_string(options.port)});
  if (!listener) {
    return fail(listener.error().code,
                fmt::format("port {} on {}: {}", options.port, options.bind, listener.error().message));
  }
  on_event(fmt::format("listening on {}:{}", options.bind, options.port));
  std::list<Process> workers;
  while (!stop) {
    workers.remove_if([](Process& worker) { return !worker.running(); });
    pollfd entry{listener->fd(), POLLIN, 0};
    if (::poll(&entry, 1, 500) <= 0) continue;
    FileDescriptor client = proxy::tcp_accept(listener->fd());
    if (!client) continue;
    auto worker = admit(options, std::move(client));
    on_event(worker ? fmt::format("started a receiver (pid {})", worker->pid()) : "refused: " + worker.error().message);
    if (worker) workers.push_back(std::move(*worker));
  }
  return {};
}

}  // namespace clustar::bench::perf
