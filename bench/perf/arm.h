// One arm of a comparison as the coordinator sees it: its workers, asked together and answered together.
#pragma once

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "bench/perf/control.h"
#include "bench/perf/driver.h"
#include "bench/perf/other_cpu.h"
#include "bench/perf/process.h"
#include "transport/base/result.h"

namespace clustar::bench::perf {

inline constexpr int kDefaultPort = 18515;

struct ArmOptions {
  std::string name;                  // "A", "B", "L", "U": also what a server is asked for
  std::optional<PluginSpec> plugin;  // none: a limit
  bool udp = false;                  // the limit is UDP's
  int senders = 1;
  int elephants = 0;                 // channels from the first sender besides its own
  std::chrono::microseconds gap{0};  // Task::gap
  int streams = 1;                   // of the TCP limit
  std::string congestion;
  bool pin = true;
  std::chrono::milliseconds timeout{30000};
  std::string executable = "/proc/self/exe";
  std::optional<std::string> server;  // host:port where rank 0 runs; otherwise here
};

// What one sample gave, both sides together.
struct SampleResult {
  double seconds = 0;
  double cpu_s = 0;
  double delivered_bytes = 0;
  double p50_us = 0;
  double p99_us = 0;
  std::uint64_t unsized = 0;  // as Sample's
  Loss lost;
  Histogram histogram;

  double gbps() const { return seconds > 0 ? delivered_bytes * 8e-9 / seconds : 0; }
};

class Arm {
 public:
  // Starts the workers, loads the plugin in each and connects them.
  static Result<std::unique_ptr<Arm>> start(const ArmOptions& options);

  const std::string& name() const { return options_.name; }
  // {plugin, receiver{core, interface, ...}, sender{...}, tcp_sockets, congestion_control}; after stop() each end has
  // last_words, too: what its plugin logged when it was finalized.
  const nlohmann::json& description() const { return description_; }
  // Its plugin controls congestion itself (PluginSpec::own_congestion).
  bool has_own_congestion() const;
  // By rank: where it may run.
  const std::vector<std::vector<int>>& cores() const { return cores_; }

  Result<void> prepare(Loop loop, std::size_t bytes);
  // Repetitions `count`, content `seed`; `spin` as in Task.
  Result<SampleResult> sample(std::uint64_t count, std::uint64_t seed, bool spin);
  Result<void> release();

  Result<void> busbw_open();
  Result<SampleResult> busbw_sample(std::size_t bytes, std::uint64_t count, std::uint64_t seed);
  Result<void> busbw_close();

  // By rank.
  Result<std::vector<Usage>> usage();

  // Closes the plugin in each worker. Error: the first that failed there.
  Result<void> stop();

 private:
  struct Worker {
    std::string label;
    Process process;  // empty on another host
    std::unique_ptr<Control> control;
  };
  using Messages = std::vector<nlohmann::json>;

  explicit Arm(const ArmOptions& options) : options_(options) {}
  Result<void> start_worker(int rank);
  Result<std::unique_ptr<Control>> connect_server() const;
  Result<void> open_all();
  Result<void> connect_all();
  // Asks the first commands.size() workers and waits for all answers.
  Result<Messages> ask(const Messages& commands);
  Result<Messages> ask_same(const nlohmann::json& command, int ranks);
  struct Pending;
  void take_messages(Pending& pending);
  Error verdict(const Pending& pending);
  static Result<SampleResult> join(const Messages& answers);

  ArmOptions options_;
  std::vector<Worker> workers_;
  nlohmann::json description_;
  std::vector<std::vector<int>> cores_;
  int sampled_ranks_ = 2;  // that take part in the prepared loop
};

}  // namespace clustar::bench::perf
