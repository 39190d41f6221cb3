#include "bench/lossy/worker.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/fabric/namespaces.h"
#include "bench/lossy/receipt.h"
#include "bench/lossy/tcp_endpoint.h"
#include "bench/lossy/transport_endpoint.h"
#include "bench/perf/control.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::lossy {
namespace {

using nlohmann::json;
using perf::Control;

std::int64_t now_ns() { return SteadyClock::now().time_since_epoch().count(); }

SteadyClock::time_point in_ms(const json& message) {
  return SteadyClock::now() + std::chrono::milliseconds(message.value("limit_ms", 30'000));
}

double cpu_seconds() {
  rusage own{};
  getrusage(RUSAGE_SELF, &own);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(own.ru_utime) + seconds(own.ru_stime);
}

// The commands of one worker; answers are JSON objects, an error is thrown as Error.
class Worker {
 public:
  explicit Worker(Control& control) : control_(control) {}

  json handle(const json& command) {
    const auto what = command.at("do").get<std::string>();
    if (what == "open") return open(command);
    if (what == "accept") return require(endpoint_->accept(in_ms(command)));
    if (what == "connect") return require(endpoint_->connect(command.at("where"), index_, in_ms(command)));
    if (what == "round") return round(command);
    if (what == "facts") return take(endpoint_->facts());
    throw Error{ErrorCode::kInternal, "unknown command " + what};
  }

 private:
  template <class T>
  static T take(Result<T> result) {
    if (!result) throw Error(result.error());
    return std::move(*result);
  }
  static json require(const Result<void>& result) {
    if (!result) throw Error(result.error());
    return json::object();
  }

  json open(const json& command) {
    terms_ = terms_from(command.at("terms"));
    sends_ = command.at("sends");
    index_ = command.at("index");
    if (terms_.arm.carrier == Carrier::kTcp || terms_.arm.carrier == Carrier::kMptcp) {
      endpoint_ = std::make_unique<TcpEndpoint>(terms_, sends_);
    } else {
      endpoint_ = take(TransportEndpoint::create(terms_, sends_));
    }
    if (sends_) return json::object();
    return {{"where", take(endpoint_->listen(command.at("address")))}};
  }

  // Ready; a sender then waits for the moment to begin, which all senders are told alike.
  json round(const json& command) {
    const double cpu = cpu_seconds();
    number_ = command.at("number");
    const auto deadline = in_ms(command);
    const auto peers = static_cast<std::size_t>(sends_ ? 1 : terms_.senders);
    missing_ = 0;
    posted_.assign(peers, 0);
    slots_.assign(peers, std::vector<std::uint64_t>(static_cast<std::size_t>(terms_.window)));
    if (!sends_) post_first();
    control_.send({{"ready", true}});
    if (sends_) {
      wait_for_go(deadline);
      post_first();
    }
    json messages = json::array();
    move_all(messages, deadline);
    return {{"messages", std::move(messages)}, {"cpu_s", cpu_seconds() - cpu}};
  }

  void wait_for_go(SteadyClock::time_point deadline) {
    json go;
    if (control_.wait(&go, deadline) != Control::State::kMessage) {
      throw Error{ErrorCode::kInternal, "the coordinator did not say go"};
    }
    const std::int64_t at = go.at("go");
    const timespec until{at / 1'000'000'000, at % 1'000'000'000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }

  void post_first() {
    for (std::size_t peer = 0; peer < posted_.size(); ++peer) {
      for (int slot = 0; slot < std::min(terms_.window, terms_.messages); ++slot) post(static_cast<int>(peer), slot);
    }
  }

  void post(int peer, int slot) {
    const auto at = static_cast<std::size_t>(peer);
    const std::uint64_t sequence = static_cast<std::uint64_t>(number_) * static_cast<std::uint64_t>(terms_.messages) +
                                   static_cast<std::uint64_t>(posted_[at]++);
    slots_[at][static_cast<std::size_t>(slot)] = sequence;
    if (sends_) write_stamps(endpoint_->memory(peer, slot), index_, sequence);
    require(endpoint_->post(peer, slot, number_));
  }

  void move_all(json& messages, SteadyClock::time_point deadline) {
    std::size_t left = posted_.size() * static_cast<std::size_t>(terms_.messages);
    std::vector<Ended> ended;
    while (left > 0) {
      ended.clear();
      require(endpoint_->progress(ended));
      const std::int64_t at = now_ns();
      for (const Ended& one : ended) {
        if (!sends_) messages.push_back({one.peer, at, check(one)});
        if (posted_[static_cast<std::size_t>(one.peer)] < terms_.messages) post(one.peer, one.slot);
        --left;
      }
      if (left == 0) return;
      if (SteadyClock::now() > deadline) {
        throw Error{ErrorCode::kRemote, fmt::format("{} messages of the round did not end in time", left)};
      }
      if (ended.empty()) endpoint_->sleep();
    }
  }

  // Returns how many of its bytes are missing.
  std::uint64_t check(const Ended& one) {
    const std::uint64_t sequence = slots_[static_cast<std::size_t>(one.peer)][static_cast<std::size_t>(one.slot)];
    require(check_bytes(endpoint_->memory(one.peer, one.slot), one.peer, sequence, one.missing));
    std::uint64_t missing = 0;
    for (const transport::MissingRange& range : one.missing) missing += range.length;
    missing_ += missing;
    require(check_missing(terms_, number_, missing_));
    return missing;
  }

  Control& control_;
  Terms terms_;
  bool sends_ = false;
  int index_ = 0;
  std::unique_ptr<Endpoint> endpoint_;
  std::uint32_t number_ = 0;
  std::uint64_t missing_ = 0;                      // bytes of this round
  std::vector<int> posted_;                        // in this round, by peer
  std::vector<std::vector<std::uint64_t>> slots_;  // which message lies there
};

}  // namespace

json to_json(const Terms& terms) {
  return {{"arm", terms.arm.name},           {"senders", terms.senders}, {"message_bytes", terms.message_bytes},
          {"messages", terms.messages},      {"window", terms.window},   {"rate_bps", terms.rate_bps},
          {"deadline_ns", terms.deadline_ns}};
}

Terms terms_from(const json& message) {
  Terms terms;
  const auto arm = find_arm(message.at("arm"));
  if (arm) terms.arm = *arm;
  message.at("senders").get_to(terms.senders);
  message.at("message_bytes").get_to(terms.message_bytes);
  message.at("messages").get_to(terms.messages);
  message.at("window").get_to(terms.window);
  message.at("rate_bps").get_to(terms.rate_bps);
  message.at("deadline_ns").get_to(terms.deadline_ns);
  return terms;
}

int run_worker(const std::string& in_namespace) {
  // Ctrl-C is the coordinator's business; it ends this process by closing the connection.
  for (const int number : {SIGINT, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  prctl(PR_SET_TIMERSLACK, 1UL);  // short sleeps as short as they say
  Control control{FileDescriptor(kControlFd)};
  try {
    if (const auto entered = fabric::enter_namespace(in_namespace); !entered) throw Error(entered.error());
    Worker worker(control);
    for (;;) {
      pollfd polled{control.fd(), POLLIN, 0};
      poll(&polled, 1, -1);
      json command;
      const auto state = control.poll(&command);
      if (state == Control::State::kClosed) return 0;
      if (state == Control::State::kMessage) control.send(worker.handle(command));
    }
  } catch (const Error& error) {
    control.send(perf::to_json(error));
  } catch (const std::exception& error) {
    control.send(perf::to_json(Error{ErrorCode::kInternal, error.what()}));
  }
  return 1;
}

}  // namespace clustar::bench::lossy
