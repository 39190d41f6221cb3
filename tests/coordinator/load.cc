// What a coordinator takes for many agents: they report once in an interval each, and note when each order came.
//    coordinator_load [--agents 1000] [--seconds 10] [--flood 0] [--key-file FILE]
// Half of the time without, half with a flood of so many connections that say nothing, if there is one. Agents and
// coordinator share the machine, so a round is slower than over a network by what its agents take.
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coflow/control/daemon/shared_key.h"
#include "tests/coordinator/daemon_process.h"
#include "tests/coordinator/test_agent.h"

namespace clustar::tests {
namespace {

using namespace coflow::control;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kInterval{100};

double ms_between(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

double quantile(std::vector<double> all, double part) {
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return all[std::min(all.size() - 1, static_cast<std::size_t>(part * static_cast<double>(all.size())))];
}

struct Round {
  Clock::time_point first{}, last{};
  std::size_t heard = 0;
};

class LoadedCoordinator {
 public:
  LoadedCoordinator(std::size_t agents, const SessionKey& key, const Words& options) : daemon_(options) {
    while (daemon_.listens() && agents_.size() < agents) add(key);
    for (const auto& agent : agents_) polled_.push_back({agent->fd(), POLLIN, 0});
  }
  bool ready() const { return daemon_.listens() && daemon_.state()["agents_in_all"] == agents_.size(); }
  std::string log() { return daemon_.log(); }

  // One line of figures.
  void run(const char* name, std::chrono::milliseconds time, std::size_t flood) {
    rounds_.clear();
    const auto before = daemon_.state();
    const auto begin = Clock::now();
    std::vector<int> strangers;
    std::size_t next = 0;
    for (auto now = begin; now - begin < time; now = Clock::now()) {
      // Each agent's turn comes once in an interval.
      const double part = ms_between(begin, now) / std::chrono::duration<double, std::milli>(kInterval).count();
      const auto due = static_cast<std::size_t>(part * static_cast<double>(agents_.size()));
      for (; next < due; ++next) report(next);
      const auto wanted = static_cast<std::size_t>(static_cast<double>(flood) * ms_between(begin, now) /
                                                   static_cast<double>(time.count()));
      for (; strangers.size() < wanted; strangers.push_back(connect_to(daemon_.port()))) {
      }
      read_all();
    }
    for (const int fd : strangers) close(fd);
    tell(name, before, daemon_.state());
  }

 private:
  void add(const SessionKey& key) {
    auto agent = std::make_unique<TestAgent>(daemon_.port(), key);
    const auto number = static_cast<std::uint32_t>(agents_.size() + 1);
    agent->send(hello_of(number, 1 + number % 10, "node-" + std::to_string(number)));
    if (!agent->next_of<Welcome>()) return;
    agents_.push_back(std::move(agent));
    report(agents_.size() - 1);
  }
  void report(std::size_t at) {
    const std::size_t index = at % agents_.size();
    const auto job = static_cast<std::uint32_t>(1 + (index + 1) % 10);
    agents_[index]->send(report_of(job, 1 + index % 3, 1'000'000 + at));
  }
  void read_all() {
    if (poll(polled_.data(), polled_.size(), 1) <= 0) return;
    const auto now = Clock::now();
    for (std::size_t i = 0; i < polled_.size(); ++i) {
      if (polled_[i].revents == 0) continue;
      while (const auto message = agents_[i]->next(std::chrono::milliseconds(0))) {
        const auto* order = std::get_if<Order>(&*message);
        if (order == nullptr) continue;
        Round& round = rounds_[order->version];
        if (round.heard++ == 0) round.first = now;
        round.last = now;
      }
    }
  }
  void tell(const char* name, const nlohmann::json& before, const nlohmann::json& after) {
    std::vector<double> spreads;
    for (const auto& [version, round] : rounds_) {
      if (round.heard == agents_.size()) spreads.push_back(ms_between(round.first, round.last));
    }
    const double rounds = static_cast<double>(std::max<std::size_t>(rounds_.size(), 1));
    fmt::print(
        "{}: {} agents, {} rounds of which {} reached all; first to last agent: median {:.1f} ms, 99 % {:.1f} ms; "
        "coordinator's part: latest {:.1f} ms, longest {:.1f} ms; its processor time in an interval {:.1f} ms; turned "
        "away "
        "{}\n",
        name, agents_.size(), rounds_.size(), spreads.size(), quantile(spreads, 0.5), quantile(spreads, 0.99),
        after["round"]["latest_ms"].get<double>(), after["round"]["longest_ms"].get<double>(),
        (after["cpu_ms"].get<double>() - before["cpu_ms"].get<double>()) / rounds,
        after["counters"]["turned_away"].get<std::uint64_t>() - before["counters"]["turned_away"].get<std::uint64_t>());
    std::fflush(stdout);
  }

  DaemonProcess daemon_;
  std::vector<std::unique_ptr<TestAgent>> agents_;
  std::vector<pollfd> polled_;
  std::map<Version, Round> rounds_;
};

int run_load(const std::map<std::string, std::string>& given) {
  const auto number = [&](const char* name, long usual) {
    const auto found = given.find(name);
    return found == given.end() ? usual : std::atol(found->second.c_str());
  };
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  const auto file = given.find("--key-file");
  const auto key = SharedKey::read(file == given.end() ? "" : file->second);
  if (!key) return fmt::print(stderr, "{}\n", key.error().message), 1;
  Words options{"--interval", "100ms"};
  if (file != given.end()) options.insert(options.end(), {file->first, file->second});
  LoadedCoordinator loaded(static_cast<std::size_t>(number("--agents", 1000)), key->session_key(), options);
  if (!loaded.ready()) return fmt::print(stderr, "not all agents are welcome\n{}", loaded.log()), 1;
  const auto half = std::chrono::milliseconds(number("--seconds", 10) * 500);
  loaded.run("warm-up", std::chrono::seconds(1), 0);
  loaded.run("quiet", half, 0);
  if (number("--flood", 0) > 0) loaded.run("flood", half, static_cast<std::size_t>(number("--flood", 0)));
  return 0;
}

}  // namespace
}  // namespace clustar::tests

int main(int argc, char** argv) {
  std::map<std::string, std::string> given;
  for (int i = 1; i + 1 < argc; i += 2) given[argv[i]] = argv[i + 1];
  return clustar::tests::run_load(given);
}
