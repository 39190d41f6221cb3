#include "bench/perf/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <exception>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "bench/perf/busbw.h"
#include "bench/perf/control.h"
#include "bench/perf/driver.h"
#include "bench/perf/interface.h"
#include "bench/perf/other_cpu.h"
#include "bench/perf/plugin_wire.h"
#include "bench/perf/socket_hook.h"
#include "bench/perf/tcp_wire.h"
#include "bench/perf/udp_wire.h"
#include "bench/perf/watchdog.h"

namespace clustar::bench::perf {
namespace {

using nlohmann::json;

// The receiver has the first allowed core, senders share the others. -1 when there is only one.
int pin(int rank) {
  const std::vector<int> cores = allowed_cores();
  if (cores.size() < 2) return -1;
  const std::size_t index = rank == 0 ? 0 : 1 + static_cast<std::size_t>(rank - 1) % (cores.size() - 1);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cores[index], &mine);
  return sched_setaffinity(0, sizeof mine, &mine) == 0 ? cores[index] : -1;
}

class Worker {
 public:
  explicit Worker(const std::optional<PluginSpec>& spec)
      : spec_(spec), control_(FileDescriptor(kControlFd)), watchdog_(control_) {}

  int run() {
    for (;;) {
      json command;
      const auto state = control_.wait(&command, Clock::now() + std::chrono::hours(1));
      if (state == Control::State::kNothing) continue;
      if (state == Control::State::kClosed) return 1;
      const std::string name = command.value("do", "");
      // Longer than the bound of whatever waits inside, so that its own message comes first.
      watchdog_.begin(name, timeout_ + std::chrono::seconds(2));
      auto answer = handle(name, command);
      watchdog_.end();
      if (!control_.send(answer ? *answer : to_json(answer.error()))) return 1;
      if (name == "quit" || !answer) return answer ? 0 : 1;
    }
  }

 private:
  Result<json> handle(const std::string& name, const json& command) try {
    if (name == "open") return open(command);
    if (name == "listen") return listen(command);
    if (name == "connect") return connect(command);
    if (name == "prepare") return prepare(command);
    if (name == "sample") return sample(command);
    if (name == "release") return release();
    if (name == "usage") return to_json(usage_now());
    if (name == "busbw_root") return busbw_root();
    if (name == "busbw_open") return busbw_open(command);
    if (name == "busbw_sample") return busbw_sample(command);
    if (name == "busbw_close") return busbw_close();
    if (name == "quit") return quit();
    return fail(ErrorCode::kInvalidUsage, fmt::format("unknown command '{}'", name));
  } catch (const std::exception& error) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("command '{}': {}", name, error.what()));
  }

  // Order matters: core and congestion control are settled before the plugin makes threads and sockets.
  Result<json> open(const json& command) {
    rank_ = command.at("rank");
    timeout_ = std::chrono::milliseconds(command.at("timeout_ms").get<int>());
    const int core = command.at("pin").get<bool>() ? pin(rank_) : -1;
    prctl(PR_SET_TIMERSLACK, 1000);
    if (auto set = set_congestion_control(command.at("congestion")); !set) return tl::unexpected(set.error());
    const std::string address = local_address(control_.fd());
    json answer = {
        {"core", core}, {"cores", allowed_cores()}, {"interface", to_json(interface_of(address))}, {"pid", getpid()}};
    if (!spec_) {
      const int streams = command.at("streams");
      if (streams < 1 || streams > 64) return fail(ErrorCode::kInvalidArgument, "1 to 64 streams are possible");
      if (command.value("udp", false)) {
        wire_ = std::make_unique<UdpWire>(rank_, address);
      } else {
        wire_ = std::make_unique<TcpWire>(rank_, address, streams);
      }
      return answer;
    }
    auto wire = PluginWire::open(*spec_);
    if (!wire) return tl::unexpected(wire.error());
    plugin_ = wire->get();
    wire_ = std::move(*wire);
    const PluginDescription& about = plugin_->description();
    answer["plugin"] = {{"path", spec_->path},
                        {"name", about.name},
                        {"version", about.version},
                        {"device", about.device},
                        {"speed_mbps", about.speed_mbps},
                        {"transport", about.transport}};
    return answer;
  }

  Result<json> listen(const json& command) {
    if (!wire_) return fail(ErrorCode::kInvalidUsage, "nothing is open yet");
    auto handles = wire_->listen(command.at("count"));
    if (!handles) return tl::unexpected(handles.error());
    return json{{"handles", *handles}};
  }

  Result<json> connect(const json& command) {
    if (!wire_) return fail(ErrorCode::kInvalidUsage, "nothing is open yet");
    const std::vector<std::string> handles = command.at("handles");
    if (auto ok = wire_->connect(handles, Clock::now() + timeout_); !ok) return tl::unexpected(ok.error());
    connected_ = static_cast<int>(handles.size());
    const TcpSockets sockets = tcp_sockets(control_.fd());
    return json{{"tcp_sockets", sockets.count}, {"congestion", sockets.controls}};
  }

  Result<json> prepare(const json& command) {
    loop_ = static_cast<Loop>(command.at("loop").get<int>());
    bytes_ = command.at("bytes");
    peers_ = command.at("peers");
    // From another host this may be anything.
    if (!wire_ || loop_ > Loop::kMixed || bytes_ < 1 || bytes_ > kMaxMessageBytes || peers_ < 1 ||
        peers_ > (rank_ == 0 || loop_ == Loop::kMixed ? connected_ : kMaxPeers)) {
      return fail(ErrorCode::kInvalidUsage, "what to prepare makes no sense");
    }
    const Sizes sizes = buffer_sizes(loop_, bytes_, peers_, rank_);
    auto send = Memory::allocate(sizes.send);
    if (!send) return tl::unexpected(send.error());
    auto receive = Memory::allocate(sizes.receive);
    if (!receive) return tl::unexpected(receive.error());
    send_ = std::move(*send);
    receive_ = std::move(*receive);
    fill(send_.part(0, send_.size()), 0x636f6c64);
    if (auto ok = wire_->attach(send_, receive_); !ok) return tl::unexpected(ok.error());
    return json{{"ok", true}};
  }

  Result<json> sample(const json& command) {
    Task task{loop_,
              bytes_,
              command.at("count"),
              command.at("seed"),
              command.at("spin"),
              peers_,
              rank_,
              std::chrono::microseconds(command.value("gap_us", 0))};
    if (send_.size() == 0 || task.count < 1 || task.count > kMaxCount) {
      return fail(ErrorCode::kInvalidUsage, "nothing is prepared, or the count makes no sense");
    }
    Driver driver(*wire_, send_, receive_, watchdog_.progress(), timeout_);
    auto sample = driver.run(task);
    if (!sample) return tl::unexpected(sample.error());
    return to_message(*sample);
  }

  Result<json> release() {
    if (!wire_) return fail(ErrorCode::kInvalidUsage, "nothing is open yet");
    if (auto ok = wire_->detach(); !ok) return tl::unexpected(ok.error());
    send_ = Memory();
    receive_ = Memory();
    return json{{"ok", true}};
  }

  Result<json> busbw_root() {
    auto listening = listen_on_any_port(local_address(control_.fd()));
    if (!listening) return tl::unexpected(listening.error());
    return json{{"root", listening->address}};
  }

  Result<json> busbw_open(const json& command) {
    if (plugin_ == nullptr) return fail(ErrorCode::kInvalidUsage, "busbw needs a plugin");
    auto busbw = Busbw::open(plugin_->plugin(), spec_->device, rank_, command.at("root"), timeout_);
    if (!busbw) return tl::unexpected(busbw.error());
    busbw_ = std::move(*busbw);
    return json{{"ok", true}};
  }

  Result<json> busbw_sample(const json& command) {
    const std::size_t bytes = command.at("bytes");
    if (!busbw_ || bytes > kMaxMessageBytes) return fail(ErrorCode::kInvalidUsage, "no all-reduce is open");
    auto sample = busbw_->run(bytes, command.at("count"), command.at("seed"), watchdog_.progress());
    if (!sample) return tl::unexpected(sample.error());
    return to_message(*sample);
  }

  Result<json> busbw_close() {
    if (!busbw_) return fail(ErrorCode::kInvalidUsage, "no all-reduce is open");
    auto ok = busbw_->close();
    busbw_.reset();
    if (!ok) return tl::unexpected(ok.error());
    return json{{"ok", true}};
  }

  Result<json> quit() {
    if (wire_) {
      if (auto ok = wire_->close(); !ok) return tl::unexpected(ok.error());
    }
    json answer = {{"ok", true}};
    if (plugin_ != nullptr) answer["last_words"] = plugin_->last_words();
    return answer;
  }

  static json to_message(Sample& sample) {
    json message = {{"seconds", sample.seconds},
                    {"cpu_s", sample.cpu_s},
                    {"delivered_bytes", sample.delivered_bytes},
                    {"unsized", sample.unsized},
                    {"lost_packets", sample.lost.packets},
                    {"lost_bytes", sample.lost.bytes}};
    if (sample.message_us.empty()) return message;
    Histogram histogram;
    for (const double us : sample.message_us) histogram.add(static_cast<std::uint64_t>(us * 1e3));
    message["histogram"] = histogram.sparse();
    message["p50_us"] = quantile(sample.message_us, 0.5);
    message["p99_us"] = quantile(sample.message_us, 0.99);
    return message;
  }

  std::optional<PluginSpec> spec_;
  Control control_;
  Watchdog watchdog_;
  std::chrono::milliseconds timeout_{30000};
  int rank_ = 0;
  Loop loop_ = Loop::kStream;
  std::size_t bytes_ = 0;
  int peers_ = 1;
  int connected_ = 0;
  // Order matters: the wire is closed before its memory is freed, the communicator before its plugin.
  Memory send_;
  Memory receive_;
  std::unique_ptr<Wire> wire_;
  PluginWire* plugin_ = nullptr;  // the wire, when it is one
  std::unique_ptr<Busbw> busbw_;
};

}  // namespace

int run_worker(const std::optional<PluginSpec>& plugin) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The kernel names a process after the path that it was started by, which may be /proc/self/exe.
  prctl(PR_SET_NAME, kProcessName);
  // A plugin's own text must not end up in the coordinator's JSON.
  dup2(STDERR_FILENO, STDOUT_FILENO);
  return Worker(plugin).run();
}

}  // namespace clustar::bench::perf
