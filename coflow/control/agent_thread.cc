#include "coflow/control/agent_thread.h"

#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <utility>

#include "coflow/control/core/agent.h"
#include "coflow/control/core/session.h"
#include "transport/base/library_thread.h"
#include "transport/base/system_clock.h"
#include "transport/crypto/crypto.h"
#include "transport/crypto/psk_file.h"
#include "transport/net/socket.h"

namespace clustar::coflow::control {
namespace {

using transport::net::Address;
using transport::net::ConnectState;
using transport::net::IoResult;
using transport::net::Socket;

constexpr Duration kForgetEvery = std::chrono::seconds(1);  // without a coordinator, too, classes that ended go
constexpr std::size_t kMostReads = 8;
constexpr std::size_t kMostOfName = 4;            // addresses of a host
constexpr std::size_t kMostUnsent = 1024 * 1024;  // a coordinator that takes less is as good as lost

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "?";
  return name.data();
}

// HOST:PORT, [HOST]:PORT, as the setting allows them. All addresses of the host.
Result<std::vector<Address>> look_up(const std::string& text) {
  const std::size_t colon = text.rfind(':');
  if (colon == std::string::npos) return fail(ErrorCode::kInvalidArgument, text + " is no HOST:PORT");
  std::string host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int status = ::getaddrinfo(host.c_str(), text.c_str() + colon + 1, &hints, &list);
  if (status != 0) return fail(ErrorCode::kUnavailable, gai_strerror(status));
  std::vector<Address> all;
  for (const addrinfo* one = list; one != nullptr && all.size() < kMostOfName; one = one->ai_next) {
    all.push_back(Address::of(one->ai_addr));
  }
  ::freeaddrinfo(list);
  return all;
}

// By these other hosts' reports name this one: all addresses, since a peer knows one of them.
std::vector<std::uint32_t> numbers_of(const std::string& nic) {
  std::vector<std::uint32_t> first, others;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {};
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr) continue;
    if (one->ifa_addr->sa_family != AF_INET && one->ifa_addr->sa_family != AF_INET6) continue;
    if (std::strcmp(one->ifa_name, "lo") == 0 && nic != "lo") continue;
    (nic == one->ifa_name ? first : others).push_back(Address::of(one->ifa_addr).host_number());
  }
  ::freeifaddrs(list);
  // A device of verbs has another name than its interface.
  std::vector<std::uint32_t>& numbers = first.empty() ? others : first;
  numbers.resize(std::min(numbers.size(), kMostAddresses));
  return numbers;
}

}  // namespace

class AgentThread::Loop {
 public:
  static Result<std::unique_ptr<Loop>> create(const AgentThreadOptions& options, Log log) {
    std::unique_ptr<Loop> loop(new Loop(options, std::move(log)));
    for (const std::string& coordinator : options.coordinators) {
      const auto found = look_up(coordinator);
      if (found) loop->addresses_.insert(loop->addresses_.end(), found->begin(), found->end());
      if (!found) {
        loop->log_.warn(fmt::format("send order: the coordinator {} cannot be looked up, and is not tried: {}",
                                    coordinator, found.error().message));
      }
    }
    if (loop->addresses_.empty()) return nullptr;
    if (!options.key_file.empty()) {
      auto secret = transport::crypto::read_psk(options.key_file);
      if (!secret) return tl::unexpected(secret.error());
      auto crypto = transport::crypto::Crypto::open();
      if (!crypto) return tl::unexpected(crypto.error());
      loop->secret_ = std::move(*secret);
      loop->crypto_ = std::move(*crypto);
    }
    loop->event_ = FileDescriptor(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!loop->event_) return fail(ErrorCode::kSystem, "eventfd: " + describe_errno(errno));
    loop->thread_.start([raw = loop.get()] { raw->run(); }, [raw = loop.get()] { raw->end(); });
    return loop;
  }
  ~Loop() { thread_.end(); }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  std::shared_ptr<ClassBook> add(const Nic& nic) {
    Link link;
    link.name = nic.name;
    std::uint64_t seed = 0;
    (void)transport::net::fill_random(std::as_writable_bytes(std::span(&seed, 1)));
    Hello hello;
    hello.agent = seed;
    hello.job = options_.job;
    hello.weight = options_.weight;
    hello.bytes_per_second = nic.bytes_per_second;
    hello.tenant = options_.tenant;
    hello.host = host_name();
    hello.nic = nic.name;
    hello.addresses = numbers_of(nic.name);
    link.agent = std::make_unique<Agent>(AgentOptions{.hello = hello, .addresses = addresses_.size()}, mix64(seed),
                                         clock_.now());
    link.book = std::make_shared<ClassBook>(options_.deadline);
    const std::lock_guard lock(mutex_);
    if (links_.size() >= kMostNics) return nullptr;
    auto book = link.book;
    links_.push_back(std::move(link));
    ::eventfd_write(event_.fd(), 1);
    return book;
  }

 private:
  struct Link {
    std::string name;
    std::unique_ptr<Agent> agent;
    std::unique_ptr<Session> session{};
    Socket socket{};
    bool connected = false;
    std::shared_ptr<ClassBook> book;
    TimePoint collect_at{};
    std::uint64_t changes = 0;
  };

  Loop(const AgentThreadOptions& options, Log log) : options_(options), log_(std::move(log)) {}

  void end() {
    ends_.store(true, std::memory_order_release);
    ::eventfd_write(event_.fd(), 1);
  }

  void run() {
    while (!ends_.load(std::memory_order_acquire)) {
      Duration sleep = kForgetEvery;
      std::vector<pollfd> watched{{event_.fd(), POLLIN, 0}};
      {
        const std::lock_guard lock(mutex_);
        for (Link& link : links_) {
          drive(link);
          const TimePoint now = clock_.now();
          sleep = std::min<Duration>(sleep, link.collect_at - now);
          if (const auto next = link.agent->next_timeout()) sleep = std::min<Duration>(sleep, *next - now);
          if (!link.socket) continue;
          const bool writes = !link.connected || !link.session->to_send().empty();
          watched.push_back({link.socket.fd(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0});
        }
      }
      const auto ns = std::max<Duration::rep>(0, sleep.count());
      const timespec limit{static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
      (void)::ppoll(watched.data(), watched.size(), &limit, nullptr);
      eventfd_t wakes = 0;
      ::eventfd_read(event_.fd(), &wakes);
    }
    const std::lock_guard lock(mutex_);
    for (Link& link : links_) {
      link.agent->stop();
      act(link);
      write(link);
      link.book->place(false, {});
    }
  }

  void drive(Link& link) {
    read(link);
    const TimePoint now = clock_.now();
    link.agent->on_timeout(now);
    if (now >= link.collect_at) {
      link.agent->on_classes(link.book->collect(now));
      const bool served = link.agent->state() == Agent::State::kServed;
      link.collect_at = now + (served ? link.agent->interval() : kForgetEvery);
    }
    act(link);
    write(link);
    if (link.agent->changes() != link.changes) {
      link.changes = link.agent->changes();
      link.book->place(link.agent->ordered(), link.agent->places());
    }
    for (const Placed& held : link.agent->take_holds()) link.book->hold(held);
    while (const auto news = link.agent->news()) {
      const std::string line = fmt::format("send order of {}: {}", link.name, news->line);
      news->bad ? log_.warn(line) : log_.info(line);
    }
  }

  void act(Link& link) {
    while (auto action = link.agent->poll()) {
      if (const auto* connect = std::get_if<Agent::Connect>(&*action)) {
        start(link, addresses_[connect->address]);
      } else if (auto* send = std::get_if<Agent::Send>(&*action)) {
        if (link.session) link.session->send(send->message);
      } else {
        write(link);
        close(link);
      }
    }
  }

  void start(Link& link, const Address& address) {
    close(link);
    sockaddr_storage any{};
    any.ss_family = address.raw()->sa_family;
    auto socket = transport::net::start_connect(Address::of(reinterpret_cast<const sockaddr*>(&any)), address, {});
    if (!socket) return link.agent->on_closed(socket.error().message, clock_.now());
    link.socket = std::move(*socket);
    Nonce16 nonce{};
    (void)transport::net::fill_random(nonce);
    SessionKey key;
    if (crypto_) {
      key.hmac = [this](std::span<const std::byte> secret, std::span<const std::byte> data) {
        const auto digest = crypto_->hmac(secret, data);
        return digest ? std::optional<Digest32>(*digest) : std::nullopt;
      };
      key.key = secret_.bytes();
    }
    link.session = std::make_unique<Session>(Session::Side::kAgent, key, nonce);
  }

  static void close(Link& link) {
    link.socket = {};
    link.session.reset();
    link.connected = false;
  }

  void lose(Link& link, std::string why) {  // a copy: the session may say why
    close(link);
    link.agent->on_closed(why, clock_.now());
  }

  void read(Link& link) {
    if (!link.socket) return;
    if (!link.connected) {
      int error = 0;
      const ConnectState state = transport::net::connect_result(link.socket, &error);
      if (state == ConnectState::kFailed) return lose(link, describe_errno(error));
      if (state == ConnectState::kPending) return;
      link.connected = true;
      link.collect_at = clock_.now();
      link.agent->on_connected(clock_.now());
    }
    std::array<std::byte, 16 * 1024> buffer;
    // A coordinator that says more in one turn than this may say it later: the thread has an end, and other NICs.
    for (std::size_t turn = 0; link.socket && turn < kMostReads; ++turn) {
      const IoResult got = transport::net::read_some(link.socket.fd(), std::span<std::byte>(buffer));
      if (got.kind == IoResult::Kind::kWouldBlock) return;
      if (got.kind == IoResult::Kind::kClosed) return lose(link, "it closed the connection");
      if (got.kind == IoResult::Kind::kError) return lose(link, describe_errno(got.error));
      if (!link.session->on_bytes(std::span(buffer).first(got.bytes))) return lose(link, link.session->failure());
      while (link.session) {
        const auto message = link.session->next();
        if (!message) break;
        const bool joined = link.agent->state() != Agent::State::kServed;
        link.agent->on_message(*message, clock_.now());
        // What it has to say, it says at once.
        if (joined && link.agent->state() == Agent::State::kServed) link.collect_at = clock_.now();
        act(link);
      }
    }
  }

  void write(Link& link) {
    if (!link.socket || !link.connected) return;
    while (!link.session->to_send().empty()) {
      const IoResult put = transport::net::write_some(link.socket.fd(), link.session->to_send());
      if (put.kind == IoResult::Kind::kBytes) {
        link.session->sent(put.bytes);
        continue;
      }
      if (put.kind != IoResult::Kind::kWouldBlock) return lose(link, describe_errno(put.error));
      if (link.session->to_send().size() > kMostUnsent) return lose(link, "it does not read");
      return;
    }
  }

  const AgentThreadOptions options_;
  const Log log_;
  const SystemClock clock_;
  std::vector<Address> addresses_;
  transport::crypto::Secret secret_;
  std::unique_ptr<transport::crypto::Crypto> crypto_;
  FileDescriptor event_;
  std::atomic<bool> ends_{false};
  std::mutex mutex_;
  std::vector<Link> links_;
  LibraryThread thread_;
};

AgentThread::AgentThread(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
AgentThread::~AgentThread() = default;

Result<std::unique_ptr<AgentThread>> AgentThread::start(const AgentThreadOptions& options, Log log) {
  auto loop = Loop::create(options, std::move(log));
  if (!loop) return tl::unexpected(loop.error());
  if (*loop == nullptr) return nullptr;
  return std::unique_ptr<AgentThread>(new AgentThread(std::move(*loop)));
}

std::shared_ptr<ClassBook> AgentThread::add(const Nic& nic) { return loop_->add(nic); }

}  // namespace clustar::coflow::control
