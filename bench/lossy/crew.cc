#include "bench/lossy/crew.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/ab/interrupt.h"
#include "bench/lossy/kernel_tcp.h"
#include "bench/lossy/tool.h"
#include "bench/lossy/worker.h"
#include "transport/base/file_descriptor.h"

extern char** environ;

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;
using perf::Control;

constexpr std::chrono::milliseconds kSetup{20'000};
constexpr std::chrono::milliseconds kLook{50};  // between two looks at signals while somebody is waited for

// `ps` shows which arm it is of.
Result<perf::Process> spawn(const std::string& executable, const std::string& arm, const std::string& in_namespace,
                            int control) {
  std::vector<std::string> words{"clustar:" + arm, "perf", kWorkerOption, in_namespace};
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, control, kControlFd);
  pid_t pid = -1;
  const int error = posix_spawn(&pid, executable.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return perf::Process(pid);
  return fail(ErrorCode::kSystem, fmt::format("cannot start a worker ({}): {}", executable, std::strerror(error)));
}

SetSysctl sysctls_of(const fabric::Fabric& fabric, int host) {
  return [name_space = fabric.namespace_of(host)](const std::string& name, const std::string& value) {
    return set_sysctl(name_space, name, value);
  };
}

}  // namespace

Result<void> check_interrupt() {
  if (ab::Interrupt::signal_number() == 0) return {};
  return fail(ErrorCode::kSystem, "interrupted");
}

Result<std::unique_ptr<Crew>> Crew::start(const std::string& executable, const fabric::Fabric& fabric,
                                          const Terms& terms, int first_sender) {
  std::unique_ptr<Crew> crew(new Crew(terms));
  for (int i = 0; i <= terms.senders; ++i) {
    const int host = i == 0 ? 0 : first_sender + i - 1;
    const auto set = set_kernel_tcp(terms.arm, sysctls_of(fabric, host));
    if (!set) return tl::unexpected(set.error());
    if (const auto added = crew->add(executable, fabric, host); !added) return tl::unexpected(added.error());
  }
  if (const auto opened = crew->open(fabric); !opened) return tl::unexpected(opened.error());
  for (const Member& member : crew->members_) {
    const auto reset = reset_kernel_tcp(terms.arm, sysctls_of(fabric, member.host));
    if (!reset) return tl::unexpected(reset.error());
  }
  return crew;
}

Crew::~Crew() {
  wake();
  // All first, so that they end side by side.
  for (Member& member : members_) member.control.reset();
  for (Member& member : members_) (void)member.process.ended(std::chrono::milliseconds(500));
}

Result<void> Crew::add(const std::string& executable, const fabric::Fabric& fabric, int host) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    return fail(ErrorCode::kSystem, fmt::format("socketpair: {}", std::strerror(errno)));
  }
  Member member;
  member.control = std::make_unique<Control>(FileDescriptor(pair[0]));
  const FileDescriptor theirs(pair[1]);
  auto process = spawn(executable, terms_.arm.name, fabric.namespace_of(host), theirs.fd());
  if (!process) return tl::unexpected(process.error());
  member.process = std::move(*process);
  member.host = host;
  member.who = fmt::format("the {} of {} on host {} (pid {})", members_.empty() ? "receiver" : "sender",
                           terms_.arm.name, host, member.process.pid());
  members_.push_back(std::move(member));
  return {};
}

Result<void> Crew::open(const fabric::Fabric& fabric) {
  json terms = to_json(terms_);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    members_[i].control->send({{"do", "open"},
                               {"terms", terms},
                               {"sends", i > 0},
                               {"index", i > 0 ? i - 1 : 0},
                               {"address", fabric.address(0)}});
  }
  const auto opened = answers(kSetup);
  if (!opened) return tl::unexpected(opened.error());
  const json& where = opened->front().at("where");
  for (std::size_t i = 0; i < members_.size(); ++i) {
    json command{{"do", i == 0 ? "accept" : "connect"}, {"limit_ms", kSetup.count()}};
    if (i > 0) command["where"] = where.at(i - 1);
    members_[i].control->send(command);
  }
  const auto connected = answers(kSetup);
  return connected ? Result<void>() : tl::unexpected(connected.error());
}

Result<json> Crew::answer(Member& member, SteadyClock::time_point until) {
  json message;
  for (;;) {
    if (const auto ok = check_interrupt(); !ok) return tl::unexpected(ok.error());
    const auto state = member.control->wait(&message, std::min(SteadyClock::now() + kLook, until));
    if (state == Control::State::kClosed) {
      const std::string how = member.process.ended(std::chrono::seconds(1));
      return fail(ErrorCode::kRemote, fmt::format("{} {}", member.who, how.empty() ? "closed its connection" : how));
    }
    if (state == Control::State::kMessage) {
      if (!message.contains("error")) return message;
      const Error error = perf::error_from(message);
      return fail(error.code, fmt::format("{}: {}", member.who, error.message));
    }
    if (SteadyClock::now() > until) return fail(ErrorCode::kRemote, fmt::format("{} does not answer", member.who));
  }
}

Result<std::vector<json>> Crew::answers(std::chrono::milliseconds limit) {
  const auto until = SteadyClock::now() + limit;
  std::vector<json> all;
  for (Member& member : members_) {
    auto one = answer(member, until);
    if (!one) {
      // The process that died is the reason, not the one that waits for it.
      for (Member& other : members_) {
        if (other.process.running()) continue;
        const std::string how = other.process.ended(std::chrono::milliseconds(0));
        if (one.error().message.find(other.who) == std::string::npos && how.find("signal") != std::string::npos) {
          return fail(ErrorCode::kRemote, fmt::format("{} {}", other.who, how));
        }
      }
      return tl::unexpected(one.error());
    }
    all.push_back(std::move(*one));
  }
  return all;
}

Result<json> Crew::ask(Member& member, const json& command, std::chrono::milliseconds limit) {
  member.control->send(command);
  return answer(member, SteadyClock::now() + limit);
}

Result<void> Crew::prepare(std::uint32_t number, std::chrono::milliseconds limit) {
  limit_ = limit;
  for (Member& member : members_) {
    member.control->send({{"do", "round"}, {"number", number}, {"limit_ms", limit.count()}});
  }
  const auto ready = answers(limit);
  return ready ? Result<void>() : tl::unexpected(ready.error());
}

Result<void> Crew::go(std::int64_t at_ns) {
  for (std::size_t i = 1; i < members_.size(); ++i) members_[i].control->send({{"go", at_ns}});
  return {};
}

Result<CrewRound> Crew::finish() {
  const auto done = answers(limit_ + std::chrono::seconds(2));
  if (!done) return tl::unexpected(done.error());
  CrewRound round;
  for (const json& one : *done) round.cpu_s += one.at("cpu_s").get<double>();
  for (const json& one : done->front().at("messages")) {
    round.arrivals.push_back({one.at(0), one.at(1), one.at(2)});
  }
  return round;
}

Result<json> Crew::facts() {
  json all;
  std::optional<std::uint64_t> again = 0;
  for (std::size_t i = 0; i < members_.size(); ++i) {
    auto one = ask(members_[i], {{"do", "facts"}}, kSetup);
    if (!one) return one;
    if (i > 0) {
      const auto own = one->find("retransmitted_packets");
      again = again && own != one->end() ? std::optional(*again + own->get<std::uint64_t>()) : std::nullopt;
    }
    if (i <= 1) all[i == 0 ? "receiver" : "sender"] = std::move(*one);
  }
  if (again) all["retransmitted_packets"] = *again;
  return all;
}

void Crew::sleep() {
  for (Member& member : members_) kill(member.process.pid(), SIGSTOP);
  asleep_ = true;
}

void Crew::wake() {
  if (!asleep_) return;
  for (Member& member : members_) kill(member.process.pid(), SIGCONT);
  asleep_ = false;
}

}  // namespace clustar::bench::lossy
