#include "bench/coflow/live/conductor.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bench/coflow/live/agent.h"
#include "bench/coflow/live/control.h"
#include "bench/coflow/live/coordinator_process.h"
#include "bench/coflow/live/socket_lanes.h"
#include "bench/coflow/live/transport_lanes.h"
#include "bench/perf/process.h"
#include "transport/base/system_clock.h"

namespace clustar::bench::coflow::live {
namespace {

using clustar::coflow::CoflowSpec;

constexpr auto kPatience = std::chrono::seconds(10);
constexpr Duration kSetUp = std::chrono::seconds(60);
constexpr Duration kFarewell = std::chrono::seconds(3);
constexpr Duration kLookUp = std::chrono::milliseconds(100);  // for what stop() says

// Of the host that this process is on. A kernel without the setting has the default.
Result<void> set_rto(int us) {
  constexpr int kDefault = 200'000;
  std::ofstream out("/proc/sys/net/ipv4/tcp_rto_min_us");
  const bool there = out.is_open();
  out << us << std::flush;
  if (out || us == kDefault) return {};
  return fail(ErrorCode::kUnavailable,
              there ? fmt::format("a minimum RTO of {} us: /proc/sys/net/ipv4/tcp_rto_min_us cannot be written", us)
                    : fmt::format("a minimum RTO of {} us needs Linux 6.11", us));
}

double bytes_from(const CoflowSpec& coflow, clustar::coflow::PortId port) {
  double bytes = 0;
  for (const auto& flow : coflow.flows) bytes += flow.src == port ? flow.bytes : 0;
  return bytes;
}

class Conductor {
 public:
  Conductor(Workload& workload, Plan& plan, const Arm& arm, const Stage& stage)
      : workload_(workload), plan_(plan), arm_(arm), stage_(stage) {
    if (arm_.coordinated) {
      coordinator_.emplace(stage_.fabric, CoordinatorProcess::Options{.policy = stage_.jobs.empty() ? "bssi" : "turns",
                                                                      .shifts = arm_.shifts,
                                                                      .dies = arm_.coordinator_dies});
    }
  }

  // Agents end by themselves when nobody speaks to them any more, and clear up; those that hang are killed.
  ~Conductor() {
    for (Agent& agent : agents_) agent.control.close();
    const TimePoint until = clock_.now() + kFarewell;
    for (Agent& agent : agents_) {
      const Duration left = std::max(until - clock_.now(), Duration(0));
      (void)agent.process.ended(std::chrono::duration_cast<std::chrono::milliseconds>(left));
    }
  }
  Conductor(const Conductor&) = delete;
  Conductor& operator=(const Conductor&) = delete;

  Result<void> set_up();
  Result<Replay> run(Duration limit, const Progress& progress);

 private:
  struct Agent {
    Place place;
    ControlEnd control;
    perf::Process process;
  };
  struct Running {
    std::size_t left = 0;  // flows
  };

  Place place_of(const Place& lane_end) const { return {lane_end.host, arm_.process_per_job ? lane_end.job : 0}; }
  std::string name_of(const Agent& agent) const { return live::name_of(agent.place, stage_.jobs); }
  Result<void> start(const Place& place);
  int be_agent(const Place& place, const ControlEnd& end);
  Result<void> tell(std::size_t agent, const Message& message);
  // Waits for one of the agents until then, and hears them all out.
  Result<void> listen(TimePoint until);
  Result<void> hear(std::size_t agent, const Message& message);
  Result<void> blame(const std::string& said);
  Result<void> begin(const CoflowSpec& coflow);
  Result<void> open_lanes();
  void arrived(LaneId lane, TimePoint at);
  TimePoint elapsed() const { return TimePoint{} + (clock_.now() - zero_); }

  Workload& workload_;
  Plan& plan_;
  const Arm& arm_;
  const Stage& stage_;
  const SystemClock clock_{};
  std::optional<CoordinatorProcess> coordinator_;
  std::vector<Agent> agents_;
  std::map<Place, std::size_t> agent_at_;
  std::size_t handles_ = 0, ready_ = 0;
  TimePoint zero_{};
  std::map<LaneId, std::vector<std::size_t>> on_lane_;  // coflows whose flows are under way, in order
  std::vector<Running> running_;                        // by coflow
  std::map<std::uint64_t, std::uint64_t> collectives_;  // of a job, so far
  std::size_t ended_ = 0;
  Replay replay_;
};

int Conductor::be_agent(const Place& place, const ControlEnd& end) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // Ctrl-C is the conductor's to see.
  (void)signal(SIGINT, SIG_IGN);
  (void)signal(SIGHUP, SIG_IGN);
  (void)signal(SIGTERM, SIG_DFL);
  for (Agent& other : agents_) other.control.close();
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  return run_agent(end, [&]() -> Result<std::unique_ptr<Lanes>> {
    const int host = static_cast<int>(place.host);
    if (const auto ok = stage_.fabric.enter_process(host); !ok) return tl::unexpected(ok.error());
    if (const auto ok = set_rto(arm_.rto_min_us); !ok) return tl::unexpected(ok.error());
    if (arm_.plain) return socket_lanes(stage_.fabric.address(host), arm_.congestion_control);
    std::map<std::string, std::string> variables{
        {"CLUSTAR_SOCKET_IFNAME", fabric::kHostInterface},
        {"CLUSTAR_SEND_ORDER", arm_.order},
        {"CLUSTAR_JOB", std::to_string(place.job == 0 ? 0 : stage_.first_job - 1 + place.job)},
        {"CLUSTAR_LINE_MBPS", std::to_string(std::max<std::uint64_t>(1, stage_.fabric.spec().rate_bps / 1'000'000))}};
    unsetenv("CLUSTAR_SEND_DSCP");  // of the caller
    unsetenv("CLUSTAR_COORDINATOR");
    if (coordinator_) variables["CLUSTAR_COORDINATOR"] = coordinator_->address();
    unsetenv("CLUSTAR_DEADLINE_MS");
    if (coordinator_ && place.job > 0 && place.job <= stage_.deadlines_ms.size()) {
      variables["CLUSTAR_DEADLINE_MS"] = std::to_string(stage_.deadlines_ms[place.job - 1]);
    }
    if (arm_.classes) variables["CLUSTAR_SEND_DSCP"] = "0-7=48,8=40,9=32,10=24,11-15=8";
    for (const auto& [name, value] : stage_.environment) variables[name] = value;
    for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
    return transport_lanes();
  });
}

Result<void> Conductor::start(const Place& place) {
  auto ends = ControlEnd::pair();
  if (!ends) return tl::unexpected(ends.error());
  const pid_t pid = fork();
  if (pid < 0) return fail(ErrorCode::kSystem, "fork failed");
  if (pid == 0) {
    ends->first.close();
    _exit(be_agent(place, ends->second));
  }
  ends->second.close();
  agent_at_[place] = agents_.size();
  agents_.push_back({place, std::move(ends->first), perf::Process(pid)});
  return {};
}

Result<void> Conductor::tell(std::size_t agent, const Message& message) {
  // Who does not take it in may itself wait for somebody to listen.
  const TimePoint until = clock_.now() + kPatience;
  auto sent = agents_[agent].control.try_send(message);
  for (; sent == ControlEnd::Sent::kFull && clock_.now() < until; sent = agents_[agent].control.try_send(message)) {
    if (const auto ok = listen(clock_.now() + std::chrono::milliseconds(1)); !ok) return ok;
  }
  if (sent == ControlEnd::Sent::kDone) return {};
  // What it said last is the better reason.
  for (Message last; agents_[agent].control.receive(last) == ControlEnd::State::kMessage;) {
    if (const auto ok = hear(agent, last); !ok) return ok;
  }
  return fail(ErrorCode::kRemote, fmt::format("{}: its process does not listen any more", name_of(agents_[agent])));
}

Result<void> Conductor::listen(TimePoint until) {
  std::vector<pollfd> polled;
  for (const Agent& agent : agents_) polled.push_back({agent.control.fd(), POLLIN, 0});
  const Duration pause = std::clamp(until - clock_.now(), Duration(0), kLookUp);
  const timespec time{0, pause.count() % 1'000'000'000};
  (void)ppoll(polled.data(), polled.size(), &time, nullptr);
  if (stage_.stop && stage_.stop()) return fail(ErrorCode::kUnavailable, "interrupted");
  for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
    if (polled[agent].revents == 0) continue;
    Message message;
    for (;;) {
      const auto state = agents_[agent].control.receive(message);
      if (state == ControlEnd::State::kNothing) break;
      if (state == ControlEnd::State::kClosed) {
        const std::string how = agents_[agent].process.ended(std::chrono::seconds(2));
        return fail(ErrorCode::kRemote, fmt::format("{}: its process {}", name_of(agents_[agent]),
                                                    how.empty() ? "closed its control connection" : how));
      }
      if (const auto ok = hear(agent, message); !ok) return ok;
    }
  }
  return {};
}

Result<void> Conductor::hear(std::size_t agent, const Message& message) {
  switch (message.word) {
    case Word::kHandle: {
      Message connect = message;
      connect.word = Word::kConnect;
      ++handles_;
      return tell(agent_at_.at(place_of(plan_.lanes()[message.lane].from)), connect);
    }
    case Word::kReady: ++ready_; return {};
    case Word::kArrived: arrived(message.lane, TimePoint{} + (message.at - zero_)); return {};
    case Word::kFailed: return blame(fmt::format("{}: {}", name_of(agents_[agent]), message.text.data()));
    default: return fail(ErrorCode::kInternal, "a word that is not for the conductor");
  }
}

// Where another process died, that is why.
Result<void> Conductor::blame(const std::string& said) {
  constexpr auto kSettle = std::chrono::milliseconds(300);
  for (Agent& agent : agents_) {
    const std::string how = agent.process.ended(&agent == &agents_.front() ? kSettle : std::chrono::milliseconds(0));
    if (how.starts_with("was killed")) {
      return fail(ErrorCode::kRemote, fmt::format("{}: its process {}; {}", name_of(agent), how, said));
    }
  }
  return fail(ErrorCode::kRemote, said);
}

Result<void> Conductor::set_up() {
  if (coordinator_) {
    if (const auto ok = coordinator_->start(); !ok) return ok;
  }
  for (const Plan::Lane& lane : plan_.lanes()) {
    for (const Place& end : {place_of(lane.from), place_of(lane.to)}) {
      if (agent_at_.contains(end)) continue;
      if (const auto ok = start(end); !ok) return ok;
    }
  }
  return open_lanes();
}

Result<void> Conductor::open_lanes() {
  const TimePoint until = clock_.now() + kSetUp;
  const auto in_time = [&](const char* what) -> Result<void> {
    if (clock_.now() < until) return {};
    return fail(ErrorCode::kRemote, fmt::format("{} took more than {} s", what, kSetUp / std::chrono::seconds(1)));
  };
  // Few at a time, so that no end has to keep what it cannot take in.
  constexpr std::size_t kAhead = 16;
  for (std::size_t lane = 0; lane < plan_.lanes().size(); ++lane) {
    Message message;
    message.word = Word::kListen;
    message.lane = static_cast<LaneId>(lane);
    if (const auto ok = tell(agent_at_.at(place_of(plan_.lanes()[lane].to)), message); !ok) return ok;
    while (lane + 1 - handles_ >= kAhead || (lane + 1 == plan_.lanes().size() && handles_ <= lane)) {
      if (const auto ok = listen(until); !ok) return ok;
      if (const auto ok = in_time("listening on all lanes"); !ok) return ok;
    }
  }
  for (std::size_t agent = 0; agent < agents_.size(); ++agent) {
    Message message;
    message.word = Word::kOpen;
    if (const auto ok = tell(agent, message); !ok) return ok;
  }
  while (ready_ < agents_.size()) {
    if (const auto ok = listen(until); !ok) return ok;
    if (const auto ok = in_time("connecting all lanes"); !ok) return ok;
  }
  return {};
}

Result<void> Conductor::begin(const CoflowSpec& coflow) {
  const std::size_t nth = replay_.coflows.size();
  CoflowResult result;
  result.label = coflow.label;
  result.arrival = result.began = coflow.arrival;
  result.weight = coflow.weight;
  result.flows = coflow.flows.size();
  const double most = bottleneck(coflow);
  result.isolated_s = most / stage_.port_rate;
  std::vector<clustar::coflow::PortId> senders, receivers;
  for (const auto& flow : coflow.flows) {
    result.bytes += flow.bytes;
    result.longest_flow = std::max(result.longest_flow, flow.bytes);
    senders.push_back(flow.src);
    receivers.push_back(flow.dst);
  }
  const auto different = [](std::vector<clustar::coflow::PortId>& ports) {
    std::ranges::sort(ports);
    return static_cast<std::size_t>(std::unique(ports.begin(), ports.end()) - ports.begin());
  };
  result.senders = different(senders);
  result.receivers = different(receivers);
  replay_.coflows.push_back(result);
  running_.push_back({coflow.flows.size()});
  const std::vector<LaneId> lanes = plan_.take(coflow);
  const std::uint64_t number = collectives_[coflow.job]++;
  for (std::size_t i = 0; i < lanes.size(); ++i) {
    Message message;
    message.lane = lanes[i];
    message.flow.bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(coflow.flows[i].bytes)));
    message.flow.coflow = nth + 1;
    // A host that orders alone is told what only the coordinator can know, the coflow's bottleneck; its agent reports
    // what it has to send itself.
    const double told = arm_.coordinated ? bytes_from(coflow, coflow.flows[i].src) : most;
    if (arm_.sizes)
      message.flow.coflow_bytes = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(std::llround(told)));
    if (arm_.coordinated && coflow.job > 0) {
      message.flow.communicator = coflow.job;
      message.flow.number = number;
    }
    on_lane_[lanes[i]].push_back(nth);
    const Plan::Lane& lane = plan_.lanes()[lanes[i]];
    message.word = Word::kReceive;
    if (const auto ok = tell(agent_at_.at(place_of(lane.to)), message); !ok) return ok;
    message.word = Word::kSend;
    if (const auto ok = tell(agent_at_.at(place_of(lane.from)), message); !ok) return ok;
  }
  if (!coflow.flows.empty()) return {};
  replay_.coflows[nth].ended = coflow.arrival;
  ++ended_;
  workload_.ended(nth, elapsed());
  return {};
}

void Conductor::arrived(LaneId lane, TimePoint at) {
  auto& waiting = on_lane_.at(lane);
  const std::size_t nth = waiting.front();
  waiting.erase(waiting.begin());
  CoflowResult& result = replay_.coflows[nth];
  result.ended = std::max(result.ended, at);
  if (--running_[nth].left > 0) return;
  ++ended_;
  workload_.ended(nth, elapsed());
}

Result<Replay> Conductor::run(Duration limit, const Progress& progress) {
  constexpr Duration kBreath = std::chrono::milliseconds(50);
  zero_ = clock_.now() + kBreath;
  for (;;) {
    const TimePoint now = elapsed();
    if (now >= TimePoint{}) workload_.reached(now);
    const auto next = workload_.next_arrival();
    if (next && *next <= now) {
      if (const auto ok = begin(workload_.take()); !ok) return tl::unexpected(ok.error());
      continue;
    }
    if (!next && ended_ == replay_.coflows.size()) break;
    if (now - TimePoint{} > limit) {
      return fail(ErrorCode::kRemote,
                  fmt::format("{} of {} coflows had not ended after {} s", replay_.coflows.size() - ended_,
                              replay_.coflows.size(), limit / std::chrono::seconds(1)));
    }
    if (coordinator_) {
      if (const auto ok = coordinator_->look(now); !ok) return tl::unexpected(ok.error());
    }
    const TimePoint until = clock_.now() + (next ? std::min(*next - now, kLookUp) : kLookUp);
    if (const auto ok = listen(until); !ok) return tl::unexpected(ok.error());
    if (progress) progress(ended_, replay_.coflows.size(), elapsed());
  }
  return std::move(replay_);
}

}  // namespace

Result<Replay> play(Workload& workload, Plan& plan, const Arm& arm, const Stage& stage, Duration limit,
                    const Progress& progress) {
  plan.again();
  Conductor conductor(workload, plan, arm, stage);
  if (const auto ok = conductor.set_up(); !ok) return tl::unexpected(ok.error());
  return conductor.run(limit, progress);
}

}  // namespace clustar::bench::coflow::live
