#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>

#include "coflow/control/daemon/connections.h"
#include "coflow/control/daemon/daemon_log.h"
#include "coflow/control/daemon/http_server.h"
#include "coflow/control/daemon/listener.h"
#include "coflow/control/daemon/options.h"
#include "coflow/control/daemon/primary_link.h"
#include "coflow/control/daemon/shared_key.h"
#include "coflow/control/daemon/state_json.h"
#include "transport/base/system_clock.h"

namespace clustar::coflow::control {
namespace {

// Handlers in one turn: what they say is sent behind them, and rounds are not late for longer than they take.
constexpr int kMostInTurn = 512;
constexpr Duration kFarewell = std::chrono::seconds(1);
constexpr Duration kSummaryEvery = std::chrono::seconds(10);
// However many look at the page, it is made so often.
constexpr Duration kStateGoodFor = std::chrono::milliseconds(500);
constexpr rlim_t kOtherDescriptors = Strangers::kMost + Connections::kMostLeaving + HttpServer::kMostConnections + 32;

// Milliseconds of the wall clock: a coordinator that was restarted begins above all terms that the one before had, as
// long as no clock was set back by more than the pause between them, and without a file.
std::uint64_t term_now() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count());
}

Duration cpu_of(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + Duration(time.tv_nsec);
}

std::string host_name() {
  std::array<char, kMostName + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

// As many descriptors as the system allows.
void raise_limit(std::size_t agents, const DaemonLog& log) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= agents + kOtherDescriptors) return;
  log.warn(fmt::format(
      "there are descriptors for {} agents, not for {}: raise the limit (LimitNOFILE= of systemd), or --agents less",
      limit.rlim_cur > kOtherDescriptors ? limit.rlim_cur - kOtherDescriptors : 0, agents));
}

Result<void> check_reach(const DaemonOptions& options, const Tcp::endpoint& listen,
                         const std::optional<Tcp::endpoint>& http) {
  if (!listen.address().is_loopback() && options.key_file.empty() && !options.no_key) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--listen {}: without a key, anybody who reaches this port can change the order of all jobs; give "
                    "--key-file FILE, or listen on loopback, or say --no-key where the network is the jobs' alone",
                    options.listen));
  }
  if (http && !http->address().is_loopback() && !options.http_anyone) {
    return fail(
        ErrorCode::kInvalidArgument,
        fmt::format("--http {}: the page has no password, and names jobs, tenants and hosts; listen on loopback (and "
                    "look by `ssh -L`), or say --http-anyone",
                    options.http));
  }
  return {};
}

class Daemon {
 public:
  Daemon(const DaemonOptions& options, SharedKey key)
      : options_(options),
        key_(std::move(key)),
        log_(options.verbosity),
        began_(clock_.now()),
        coordinator_(with_term(options.coordinator), began_),
        connections_(io_, key_.session_key(), log_,
                     {[this](Coordinator::Link link, const Message& message) { on_message(link, message); },
                      [this](Coordinator::Link link) { coordinator_.on_closed(link, clock_.now()); }}),
        http_(io_, {[this] { return state(); }, [this] { return health(); }}, options.http_anyone),
        timer_(io_),
        signals_(io_, SIGINT, SIGTERM) {}

  Result<std::string> open(const Tcp::endpoint& listen, const std::optional<Tcp::endpoint>& http,
                           std::vector<Tcp::endpoint> primary);
  void run();

 private:
  static CoordinatorOptions with_term(CoordinatorOptions options) {
    options.first_term = term_now();
    return options;
  }

  void on_message(Coordinator::Link link, const Message& message);
  void end_turn();
  void measure_round(TimePoint due, TimePoint began, Duration cpu_before);
  void tell_changes();
  void summarize(TimePoint now);
  void arm_timer();
  void stop(int signal);
  std::string state();
  Health health() const;

  const DaemonOptions options_;
  const SharedKey key_;
  const DaemonLog log_;
  const SystemClock clock_{};
  const TimePoint began_;
  // All is done by one thread.
  boost::asio::io_context io_{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE};
  Coordinator coordinator_;
  Connections connections_;
  HttpServer http_;
  std::unique_ptr<PrimaryLink> primary_;
  std::unique_ptr<Listener> door_, http_door_;
  boost::asio::steady_timer timer_;
  std::optional<TimePoint> armed_;
  boost::asio::signal_set signals_;
  std::optional<TimePoint> stop_by_;
  bool was_in_charge_ = false;
  RoundTimes rounds_;
  Connections::Counters summarized_;
  TimePoint next_summary_{};
  std::string state_;
  TimePoint state_at_ = TimePoint::min();
};

Result<std::string> Daemon::open(const Tcp::endpoint& listen, const std::optional<Tcp::endpoint>& http,
                                 std::vector<Tcp::endpoint> primary) {
  raise_limit(options_.coordinator.most_agents, log_);
  auto door = Listener::open(io_, listen, "--listen",
                             [this](int fd, const Tcp::endpoint& peer) { return connections_.take(fd, peer); });
  if (!door) return tl::unexpected(door.error());
  door_ = std::move(*door);
  if (http) {
    auto opened = Listener::open(io_, *http, "--http",
                                 [this](int fd, const Tcp::endpoint& peer) { return http_.take(fd, peer); });
    if (!opened) return tl::unexpected(opened.error());
    http_door_ = std::move(*opened);
  }
  if (!primary.empty()) {
    const auto seen = [this] { return coordinator_.in_charge() ? Version{coordinator_.term(), 0} : Version{}; };
    const auto heard = [this](std::uint64_t term) { coordinator_.on_primary(term, clock_.now()); };
    primary_ = std::make_unique<PrimaryLink>(
        io_, key_.session_key(),
        PrimaryLink::Options{options_.coordinator.standby_of, std::move(primary), options_.coordinator.interval,
                             options_.coordinator.lease(), host_name()},
        log_, seen, heard);
  }
  signals_.async_wait([this](const boost::system::error_code& error, int signal) {
    if (!error) stop(signal);
  });
  const std::string at = to_text(door_->local());
  const std::string page = http_door_ ? "\"" + to_text(http_door_->local()) + "\"" : "null";
  log_.info(fmt::format("agents are heard on {}, {} a key{}{}", at, options_.key_file.empty() ? "without" : "with",
                        http_door_ ? "; the page is at http://" + to_text(http_door_->local()) + "/" : "",
                        primary_ ? "; standby of " + options_.coordinator.standby_of : ""));
  tell_changes();
  return fmt::format("{{\"listen\":\"{}\",\"http\":{}}}", at, page);
}

void Daemon::run() {
  end_turn();
  while (!stop_by_ || (connections_.count() > 0 && clock_.now() < *stop_by_)) {
    io_.run_one();
    for (int i = 1; i < kMostInTurn && io_.poll_one() > 0; ++i) {
    }
    end_turn();
  }
  connections_.close_all();
  log_.info("stopped");
}

void Daemon::on_message(Coordinator::Link link, const Message& message) {
  if (const auto* hello = std::get_if<Hello>(&message); hello != nullptr && log_.debugs()) {
    log_.debug(fmt::format("connection {} is {} on {}/{}, job {}", link,
                           hello->role == Role::kStandby ? "a standby" : "an agent", printable(hello->host),
                           printable(hello->nic), hello->job));
  }
  coordinator_.on_message(link, message, clock_.now());
}

void Daemon::end_turn() {
  const TimePoint now = clock_.now();
  const auto due = coordinator_.next_timeout();
  const std::uint64_t rounds = coordinator_.counters().rounds;
  const bool is_due = due && *due <= now;
  const Duration cpu = is_due ? cpu_of(CLOCK_THREAD_CPUTIME_ID) : Duration(0);
  if (is_due) coordinator_.on_timeout(now);
  if (primary_) primary_->on_timeout(now);
  connections_.on_timeout(now);
  while (const auto outgoing = coordinator_.poll()) connections_.send(*outgoing);
  connections_.flush();
  if (is_due && coordinator_.counters().rounds != rounds) measure_round(*due, now, cpu);
  tell_changes();
  summarize(now);
  arm_timer();
}

void Daemon::measure_round(TimePoint due, TimePoint began, Duration cpu_before) {
  rounds_.latest = clock_.now() - began;
  rounds_.latest_cpu = cpu_of(CLOCK_THREAD_CPUTIME_ID) - cpu_before;
  rounds_.late = began - due;
  rounds_.longest = std::max(rounds_.longest, rounds_.latest);
  rounds_.longest_cpu = std::max(rounds_.longest_cpu, rounds_.latest_cpu);
}

void Daemon::tell_changes() {
  if (std::exchange(was_in_charge_, coordinator_.in_charge()) == coordinator_.in_charge()) return;
  if (coordinator_.in_charge()) {
    log_.info(fmt::format("in charge, term {}", coordinator_.term()));
  } else {
    log_.info(fmt::format("{} is in charge again", options_.coordinator.standby_of));
  }
}

// A flood is one line now and then.
void Daemon::summarize(TimePoint now) {
  const Connections::Counters& all = connections_.counters();
  const auto bad = [](const Connections::Counters& counters) {
    return counters.turned_away + counters.wrong_key + counters.nonsense + counters.timed_out + counters.too_slow;
  };
  if (now < next_summary_ || bad(all) == bad(summarized_)) return;
  log_.warn(fmt::format(
      "connections that came to nothing: {} too many at once, {} with another key or none, {} that spoke "
      "nonsense, {} that said nothing, {} that did not read",
      all.turned_away - summarized_.turned_away, all.wrong_key - summarized_.wrong_key,
      all.nonsense - summarized_.nonsense, all.timed_out - summarized_.timed_out, all.too_slow - summarized_.too_slow));
  summarized_ = all;
  next_summary_ = now + kSummaryEvery;
}

void Daemon::arm_timer() {
  std::optional<TimePoint> next = coordinator_.next_timeout();
  const auto consider = [&](std::optional<TimePoint> other) {
    if (other && (!next || *other < *next)) next = other;
  };
  consider(connections_.next_timeout());
  if (primary_ && !stop_by_) consider(primary_->next_timeout());
  consider(stop_by_);
  // One that comes too early is harmless, and is armed again then.
  if (!next || (armed_ && *armed_ <= *next)) return;
  armed_ = next;
  timer_.expires_after(std::max(Duration(0), *next - clock_.now()));
  timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) armed_.reset();
  });
}

void Daemon::stop(int signal) {
  const TimePoint now = clock_.now();
  log_.info(fmt::format("signal {}: the agents are told, for a second at most", signal));
  stop_by_ = now + kFarewell;
  door_->close();
  if (http_door_) http_door_->close();
  if (primary_) primary_->close();
  connections_.close_strangers();
  coordinator_.stop(now);
}

std::string Daemon::state() {
  const TimePoint now = clock_.now();
  if (state_at_ != TimePoint::min() && now - state_at_ < kStateGoodFor) return state_;
  DaemonView view;
  view.uptime = now - began_;
  view.cpu = cpu_of(CLOCK_PROCESS_CPUTIME_ID);
  view.stopping = stop_by_.has_value();
  view.standby_of = options_.coordinator.standby_of;
  view.hears_primary = primary_ && primary_->alive();
  view.interval = options_.coordinator.interval;
  view.lease = options_.coordinator.lease();
  view.policy = to_string(options_.coordinator.policy);
  view.connections = connections_.count();
  view.strangers = connections_.strangers();
  view.doors = connections_.counters();
  view.accept_failures = door_->failures() + (http_door_ ? http_door_->failures() : 0);
  view.rounds = rounds_;
  state_ = state_json(coordinator_, view, now);
  state_at_ = now;
  return state_;
}

Health Daemon::health() const {
  if (stop_by_) return {false, "stopping"};
  if (coordinator_.in_charge()) return {true, fmt::format("in charge, term {}", coordinator_.term())};
  const bool hears = primary_ && primary_->alive();
  return {hears, fmt::format("standby, {} {}", options_.coordinator.standby_of, hears ? "is in charge" : "is silent")};
}

}  // namespace

Result<void> run_daemon(const DaemonOptions& options, const std::function<void(const std::string&)>& ready) {
  const auto listen = parse_endpoint(options.listen, "--listen");
  if (!listen) return tl::unexpected(listen.error());
  std::optional<Tcp::endpoint> http;
  if (!options.http.empty()) {
    const auto parsed = parse_endpoint(options.http, "--http");
    if (!parsed) return tl::unexpected(parsed.error());
    http = *parsed;
  }
  if (const auto allowed = check_reach(options, *listen, http); !allowed) return allowed;
  std::vector<Tcp::endpoint> primary;
  if (!options.coordinator.standby_of.empty()) {
    auto resolved = resolve(options.coordinator.standby_of, "--standby-of");
    if (!resolved) return tl::unexpected(resolved.error());
    primary = std::move(*resolved);
  }
  auto key = SharedKey::read(options.key_file);
  if (!key) return tl::unexpected(key.error());
  std::signal(SIGPIPE, SIG_IGN);
  Daemon daemon(options, std::move(*key));
  const auto opened = daemon.open(*listen, http, std::move(primary));
  if (!opened) return tl::unexpected(opened.error());
  ready(*opened);
  daemon.run();
  return {};
}

}  // namespace clustar::coflow::control
