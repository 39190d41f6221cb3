#include "bench/perf/arm.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <set>
#include <utility>

#include "bench/perf/failure.h"
#include "bench/perf/interface.h"

namespace clustar::bench::perf {

using nlohmann::json;

// One round of questions: what came back so far.
struct Arm::Pending {
  std::vector<std::optional<json>> answers;
  std::vector<std::optional<Error>> errors;
  std::vector<bool> closed;
  std::vector<Clock::time_point> heard;  // when each was last heard of
  Clock::time_point deadline;
  std::optional<Clock::time_point> settle_until;

  bool open(std::size_t i) const { return !answers[i] && !errors[i] && !closed[i]; }
  bool failed() const {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (errors[i] || closed[i]) return true;
    }
    return false;
  }
};

Result<std::unique_ptr<Arm>> Arm::start(const ArmOptions& options) {
  auto arm = std::unique_ptr<Arm>(new Arm(options));
  for (int rank = 0; rank <= options.senders; ++rank) {
    if (auto ok = arm->start_worker(rank); !ok) return tl::unexpected(ok.error());
  }
  if (auto ok = arm->open_all(); !ok) return tl::unexpected(ok.error());
  if (auto ok = arm->connect_all(); !ok) return tl::unexpected(ok.error());
  return arm;
}

Result<void> Arm::start_worker(int rank) {
  Worker worker;
  worker.label = fmt::format("arm {}, {}", options_.name, rank == 0 ? "receiver" : fmt::format("sender {}", rank));
  if (rank == 0 && options_.server) {
    worker.label += " on " + *options_.server;
    auto control = connect_server();
    if (!control) return tl::unexpected(control.error());
    worker.control = std::move(*control);
  } else {
    std::array<int, 2> ends{};
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0) {
      return fail(ErrorCode::kSystem, fmt::format("socketpair: {}", std::strerror(errno)));
    }
    worker.control = std::make_unique<Control>(FileDescriptor(ends[0]));
    auto process = spawn_worker(options_.executable, FileDescriptor(ends[1]), options_.plugin);
    if (!process) return tl::unexpected(process.error());
    worker.process = std::move(*process);
    worker.label += fmt::format(" (pid {})", worker.process.pid());
  }
  workers_.push_back(std::move(worker));
  return {};
}

Result<std::unique_ptr<Control>> Arm::connect_server() const {
  const auto address = proxy::parse_host_port(*options_.server);
  if (!address) return tl::unexpected(address.error());
  const auto limit = std::min<std::chrono::milliseconds>(options_.timeout, std::chrono::seconds(10));
  const auto deadline = Clock::now() + limit;
  auto fd = proxy::tcp_connect(*address, deadline);
  if (!fd) {
    return fail(fd.error().code, fmt::format("cannot reach the server {}: {}; start 'clustar perf --server' there",
                                             *options_.server, fd.error().message));
  }
  auto control = std::make_unique<Control>(std::move(*fd));
  json answer;
  json hello = {{"hello", "clustar perf"}, {"version", CLUSTAR_VERSION}, {"arm", options_.name}};
  if (options_.plugin) hello["environment"] = options_.plugin->environment;
  const bool sent = control->send(hello);
  if (!sent || control->wait(&answer, deadline) != Control::State::kMessage) {
    return fail(
        ErrorCode::kRemote,
        fmt::format("{} takes the connection but does not answer as 'clustar perf --server' within {:.0f} s; is "
                    "it another program's port?",
                    *options_.server, std::chrono::duration<double>(limit).count()));
  }
  if (answer.contains("error")) {
    Error error = error_from(answer);
    error.message = fmt::format("server {}: {}", *options_.server, error.message);
    return tl::unexpected(std::move(error));
  }
  return control;
}

Result<void> Arm::open_all() {
  Messages commands;
  for (std::size_t rank = 0; rank < workers_.size(); ++rank) {
    commands.push_back({{"do", "open"},
                        {"rank", rank},
                        {"pin", options_.pin},
                        {"congestion", options_.congestion},
                        {"streams", options_.streams},
                        {"udp", options_.udp},
                        {"timeout_ms", options_.timeout.count()}});
  }
  const auto answers = ask(commands);
  if (!answers) return tl::unexpected(answers.error());
  const auto side = [](const json& answer) {
    return json{{"core", answer.value("core", -1)}, {"interface", answer.value("interface", json())}};
  };
  for (const json& answer : *answers) {
    const json cores = answer.value("cores", json::array());
    const bool sound = cores.is_array() && std::all_of(cores.begin(), cores.end(),
                                                       [](const json& core) { return core.is_number_unsigned(); });
    cores_.push_back(sound ? cores.get<std::vector<int>>() : std::vector<int>());
  }
  description_ = {{"receiver", side(answers->front())}, {"sender", side(answers->back())}};
  if (options_.plugin) {
    description_["plugin"] = answers->back().value("plugin", json());
    description_["environment"] = options_.plugin->environment;
  }
  // The senders' control connections end in this process; how they reach the server shows at the receiver's.
  if (options_.server) {
    description_["sender"]["interface"] = to_json(interface_of(local_address(workers_.front().control->fd())));
  }
  return {};
}

Result<void> Arm::connect_all() {
  const std::size_t senders = workers_.size() - 1;
  const auto elephants = static_cast<std::size_t>(options_.elephants);
  Messages listens(workers_.size(), {{"do", "listen"}, {"count", 1}});
  listens[0]["count"] = senders + elephants;
  listens[1]["count"] = 1 + elephants;
  const auto handles = ask(listens);
  if (!handles) return tl::unexpected(handles.error());
  Messages connects(workers_.size());
  std::vector<json> to_senders;
  for (std::size_t rank = 1; rank <= senders; ++rank) {
    to_senders.push_back((*handles)[rank].at("handles").at(0));
    connects[rank] = {{"do", "connect"}, {"handles", json::array({(*handles)[0].at("handles").at(rank - 1)})}};
  }
  for (std::size_t i = 0; i < elephants; ++i) {
    to_senders.push_back((*handles)[1].at("handles").at(1 + i));
    connects[1]["handles"].push_back((*handles)[0].at("handles").at(senders + i));
  }
  connects[0] = {{"do", "connect"}, {"handles", to_senders}};
  const auto connected = ask(connects);
  if (!connected) return tl::unexpected(connected.error());
  std::set<std::string> controls;
  int sockets = 0;
  for (const json& answer : *connected) {
    sockets += answer.value("tcp_sockets", 0);
    for (const json& name : answer.value("congestion", json::array())) controls.insert(name.get<std::string>());
  }
  std::string text;
  for (const std::string& name : controls) text += (text.empty() ? "" : ", ") + name;
  description_["tcp_sockets"] = sockets;
  description_["congestion_control"] = text.empty() ? "none (no TCP sockets)" : text;
  if (has_own_congestion()) {
    description_["congestion_control_of_control_connections"] = text;
    description_["congestion_control"] = options_.plugin->own_congestion.name;
  }
  return {};
}

bool Arm::has_own_congestion() const {
  if (!options_.plugin || options_.plugin->own_congestion.name.empty()) return false;
  return description_["plugin"].value("name", "") == options_.plugin->own_congestion.plugin;
}

void Arm::take_messages(Pending& pending) {
  for (std::size_t i = 0; i < pending.answers.size(); ++i) {
    while (pending.open(i)) {
      json message;
      const auto state = workers_[i].control->poll(&message);
      if (state == Control::State::kNothing) break;
      if (state == Control::State::kClosed) {
        pending.closed[i] = true;
      } else if (message.contains("error")) {
        pending.errors[i] = error_from(message);
      } else if (!message.contains("alive")) {
        pending.answers[i] = std::move(message);
      }
      pending.heard[i] = Clock::now();
      pending.deadline = pending.heard[i] + options_.timeout + std::chrono::seconds(5);
    }
  }
}

Result<Arm::Messages> Arm::ask(const Messages& commands) {
  const std::size_t n = commands.size();
  Pending pending;
  pending.answers.resize(n);
  pending.errors.resize(n);
  pending.closed.assign(n, false);
  pending.heard.assign(n, Clock::now());
  for (std::size_t i = 0; i < n; ++i) {
    if (!workers_[i].control->send(commands[i])) pending.closed[i] = true;
  }
  pending.deadline = Clock::now() + options_.timeout + std::chrono::seconds(5);
  for (;;) {
    take_messages(pending);
    std::vector<pollfd> waiting;
    for (std::size_t i = 0; i < n; ++i) {
      if (pending.open(i)) waiting.push_back({workers_[i].control->fd(), POLLIN, 0});
    }
    const auto now = Clock::now();
    // The first to notice is not always the cause: the others may report for a moment.
    if (pending.failed() && !pending.settle_until) pending.settle_until = now + std::chrono::milliseconds(300);
    if (waiting.empty() || (pending.settle_until && now > *pending.settle_until)) break;
    if (now > pending.deadline) break;
    ::poll(waiting.data(), waiting.size(), 50);
  }
  Messages answers;
  for (std::size_t i = 0; i < n; ++i) {
    if (!pending.answers[i]) return tl::unexpected(verdict(pending));
    answers.push_back(std::move(*pending.answers[i]));
  }
  return answers;
}

Error Arm::verdict(const Pending& pending) {
  std::vector<Failure> failures;
  std::string lost_peer;
  for (std::size_t i = 0; i < pending.answers.size(); ++i) {
    Worker& worker = workers_[i];
    if (const auto& error = pending.errors[i]) {
      const std::string text = fmt::format("{}: {}", worker.label, error->message);
      failures.push_back({kind_of(*error), pending.heard[i], {error->code, text}});
      if (failures.back().kind == FailureKind::kLostPeer) lost_peer = text;
    } else if (pending.closed[i]) {
      const std::string how = worker.process.pid() > 0 ? worker.process.ended(std::chrono::milliseconds(500)) : "";
      const std::string text = fmt::format("{} {}", worker.label, how.empty() ? "closed its control connection" : how);
      failures.push_back({FailureKind::kDied, pending.heard[i], {ErrorCode::kRemote, text}});
    } else if (!pending.answers[i]) {
      const double silent = std::chrono::duration<double>(Clock::now() - pending.heard[i]).count();
      const std::string text = fmt::format("{} gave no sign of life for {:.1f} s", worker.label, silent);
      failures.push_back({FailureKind::kSilent, pending.heard[i], {ErrorCode::kRemote, text}});
    }
  }
  const Failure* cause = cause_of(failures);
  if (cause == nullptr) return Error{ErrorCode::kInternal, "no answer"};
  Error error = cause->error;
  if (cause->kind == FailureKind::kSilent && !lost_peer.empty()) error.message += "; " + lost_peer;
  return error;
}

Result<Arm::Messages> Arm::ask_same(const json& command, int ranks) {
  return ask(Messages(static_cast<std::size_t>(ranks), command));
}

Result<void> Arm::prepare(Loop loop, std::size_t bytes) {
  sampled_ranks_ = loop == Loop::kIncast ? static_cast<int>(workers_.size()) : 2;
  const int peers = loop == Loop::kMixed ? 1 + options_.elephants : sampled_ranks_ - 1;
  const auto answers = ask_same(
      {{"do", "prepare"}, {"loop", static_cast<int>(loop)}, {"bytes", bytes}, {"peers", peers}}, sampled_ranks_);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

Result<SampleResult> Arm::sample(std::uint64_t count, std::uint64_t seed, bool spin) {
  const auto answers =
      ask_same({{"do", "sample"}, {"count", count}, {"seed", seed}, {"spin", spin}, {"gap_us", options_.gap.count()}},
               sampled_ranks_);
  if (!answers) return tl::unexpected(answers.error());
  return join(*answers);
}

Result<void> Arm::release() {
  const auto answers = ask_same({{"do", "release"}}, sampled_ranks_);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

Result<void> Arm::busbw_open() {
  const auto root = ask_same({{"do", "busbw_root"}}, 1);
  if (!root) return tl::unexpected(root.error());
  const auto answers = ask_same({{"do", "busbw_open"}, {"root", root->front().value("root", "")}}, 2);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

Result<SampleResult> Arm::busbw_sample(std::size_t bytes, std::uint64_t count, std::uint64_t seed) {
  const auto answers = ask_same({{"do", "busbw_sample"}, {"bytes", bytes}, {"count", count}, {"seed", seed}}, 2);
  if (!answers) return tl::unexpected(answers.error());
  return join(*answers);
}

Result<void> Arm::busbw_close() {
  const auto answers = ask_same({{"do", "busbw_close"}}, 2);
  if (!answers) return tl::unexpected(answers.error());
  return {};
}

Result<std::vector<Usage>> Arm::usage() {
  const auto answers = ask_same({{"do", "usage"}}, static_cast<int>(workers_.size()));
  if (!answers) return tl::unexpected(answers.error());
  std::vector<Usage> usages;
  for (const json& answer : *answers) usages.push_back(usage_from(answer));
  return usages;
}

Result<void> Arm::stop() {
  const auto answers = ask_same({{"do", "quit"}}, static_cast<int>(workers_.size()));
  if (!answers) return tl::unexpected(answers.error());
  if (options_.plugin) {
    description_["receiver"]["last_words"] = answers->front().value("last_words", json::array());
    description_["sender"]["last_words"] = answers->back().value("last_words", json::array());
  }
  for (Worker& worker : workers_) {
    if (worker.process.pid() <= 0) continue;
    const std::string how = worker.process.ended(std::chrono::seconds(5));
    if (how == "ended with exit status 0") continue;
    return fail(ErrorCode::kInternal,
                fmt::format("{} {} while unloading", worker.label, how.empty() ? "did not end" : how));
  }
  return {};
}

Result<SampleResult> Arm::join(const Messages& answers) {
  SampleResult result;
  for (const json& answer : answers) {
    result.cpu_s += answer.value("cpu_s", 0.0);
    result.unsized += answer.value("unsized", std::uint64_t{0});
  }
  const json& receiver = answers.front();
  result.seconds = receiver.value("seconds", 0.0);
  result.delivered_bytes = receiver.value("delivered_bytes", 0.0);
  result.lost = {receiver.value("lost_packets", std::uint64_t{0}), receiver.value("lost_bytes", std::uint64_t{0})};
  result.p50_us = receiver.value("p50_us", 0.0);
  result.p99_us = receiver.value("p99_us", 0.0);
  std::vector<std::pair<std::size_t, std::uint64_t>> buckets;
  for (const json& entry : receiver.value("histogram", json::array())) {
    if (entry.is_array() && entry.size() == 2) buckets.emplace_back(entry[0], entry[1]);
  }
  if (result.seconds <= 0 || !result.histogram.add_sparse(buckets)) {
    return fail(ErrorCode::kRemote, "the receiver's answer makes no sense; is the server of the same version?");
  }
  return result;
}

}  // namespace clustar::bench::perf
