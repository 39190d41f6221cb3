#include "bench/trainer/ps_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include "paraexpress/sums/reduce.h"
#include "transport/base/file_descriptor.h"

namespace clustar::bench::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kServerTick{200};        // how often the server looks whether it shall end
constexpr milliseconds kPatienceAtEnd{10000};   // with answers that do not move, once it shall end
constexpr milliseconds kErrorPatience{500};     // with workers that do not take an error
constexpr std::size_t kReadStep = 4u << 20;     // a body's memory grows with what comes of it
constexpr std::size_t kMostServerGuests = 256;  // silent strangers must not use up the descriptors

proxy::Deadline earlier(proxy::Deadline limit) { return std::min(limit, steady_clock::now() + kServerTick); }

double in_seconds(milliseconds time) { return static_cast<double>(time.count()) / 1e3; }

std::uint16_t port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return 0;
  if (address.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6&>(address).sin6_port);
  return ntohs(reinterpret_cast<const sockaddr_in&>(address).sin_port);
}

}  // namespace

PsServer::PsServer(const Options& options) : options_(options), workers_(static_cast<std::size_t>(options.ranks)) {}

PsServer::~PsServer() { stop(); }

Result<std::unique_ptr<PsServer>> PsServer::listen(const std::string& host, const Options& options) {
  std::unique_ptr<PsServer> made(new PsServer(options));
  auto listener = proxy::tcp_listen({host, "0"});
  if (!listener) return tl::unexpected(listener.error());
  made->listener_ = std::move(*listener);
  made->port_ = port_of(made->listener_.fd());
  return made;
}

void PsServer::start() {
  thread_ = std::thread([this] { run(); });
}

void PsServer::stop() {
  stopping_ = true;
  if (thread_.joinable()) thread_.join();
}

Traffic PsServer::traffic() const {
  return {.bytes_sent = bytes_out_,
          .bytes_received = bytes_in_,
          .messages_sent = messages_out_,
          .messages_received = messages_in_};
}

void PsServer::run() {
  Result<bool> more = true;
  if (const auto joined = join(); !joined) more = tl::unexpected(joined.error());
  while (more && *more) more = serve();
  if (!more) tell(more.error());
  listener_.close();
  for (Worker& worker : workers_) worker.fd.close();
}

PsServer::Deadline PsServer::stall_limit() const {
  constexpr std::chrono::hours kNoEnd{24 * 365};
  return steady_clock::now() + (options_.stall_timeout.count() > 0 ? options_.stall_timeout : milliseconds(kNoEnd));
}

// "rank 1" or "ranks 1, 2"
std::string PsServer::those(bool Worker::*not_yet) const {
  std::string text;
  int count = 0;
  for (std::size_t r = 0; r < ranks(); ++r) {
    if (workers_[r].*not_yet) continue;
    text += fmt::format("{}{}", count++ > 0 ? ", " : "", r);
  }
  return (count == 1 ? "rank " : "ranks ") + text;
}

Result<void> PsServer::join() {
  const Deadline limit = steady_clock::now() + options_.join_timeout;
  std::vector<Newcomer> newcomers;
  const auto missing = [&] {
    return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return !worker.fd; });
  };
  while (missing()) {
    std::vector<pollfd> entries{{listener_.fd(), POLLIN, 0}};
    for (const Newcomer& one : newcomers) entries.push_back({one.fd.fd(), POLLIN, 0});
    (void)poll(entries.data(), entries.size(), proxy::poll_timeout_ms(earlier(limit)));
    if (stopping_) return fail(ErrorCode::kRemote, "rank 0 gave up while ranks connected to its parameter server");
    if (steady_clock::now() >= limit) {
      for (Worker& worker : workers_) worker.done = static_cast<bool>(worker.fd);
      return fail(ErrorCode::kRemote, fmt::format("{} did not connect to the parameter server within {} s",
                                                  those(&Worker::done), in_seconds(options_.join_timeout)));
    }
    for (Newcomer& one : newcomers) {
      const auto state = proxy::read_some(one.fd.fd(), std::as_writable_bytes(std::span(&one.hello, 1)), one.got);
      if (state == proxy::Io::kAgain) continue;
      if (state == proxy::Io::kDone) {
        if (auto ok = admit(one); !ok) return ok;
      }
      one.fd.close();
    }
    std::erase_if(newcomers, [](const Newcomer& one) { return !one.fd; });
    while (FileDescriptor fd = proxy::tcp_accept(listener_.fd())) {
      if (newcomers.size() == kMostServerGuests) newcomers.erase(newcomers.begin());
      newcomers.push_back({.fd = std::move(fd)});
    }
  }
  listener_.close();
  ps::Message welcome;
  ps::serialise({.kind = ps::kWelcome}, {}, welcome);
  for (std::size_t r = 0; r < ranks(); ++r) {
    bool timed_out = false;
    if (proxy::write_all(workers_[r].fd.fd(), welcome, limit, timed_out)) continue;
    workers_[r].left = true;
    return fail(ErrorCode::kRemote, fmt::format("rank {} left while ranks connected to the parameter server", r));
  }
  return {};
}

// One that does not know the token is a stranger, and refused; a contradiction of one that does ends the run.
Result<void> PsServer::admit(Newcomer& newcomer) {
  const ps::Header& hello = newcomer.hello;
  if (hello.magic != ps::kMagic || hello.kind != ps::kHello || hello.length != 0 || hello.sequence != options_.token) {
    const ps::Message refusal = ps::error_message(
        {ErrorCode::kInvalidUsage,
         fmt::format("this is the parameter server of a training; allowed: a hello of its ranks (magic {:#x}, kind {}, "
                     "length 0, the run's token)",
                     ps::kMagic, static_cast<std::uint32_t>(ps::kHello))});
    std::size_t sent = 0;
    (void)proxy::write_some(newcomer.fd.fd(), refusal, sent);
    return {};
  }
  if (hello.rank < ranks() && !workers_[hello.rank].fd) {
    workers_[hello.rank].fd = std::move(newcomer.fd);
    return {};
  }
  const Error wrong{ErrorCode::kInvalidUsage,
                    hello.rank < ranks()
                        ? fmt::format("two processes say that they are rank {}", hello.rank)
                        : fmt::format("there is no rank {}; allowed: 0 to {}", hello.rank, ranks() - 1)};
  std::size_t sent = 0;
  (void)proxy::write_some(newcomer.fd.fd(), ps::error_message(wrong), sent);
  return tl::unexpected(wrong);
}

// False: it is the end of the run.
Result<bool> PsServer::serve() {
  ++sequence_;
  first_ = nullptr;
  added_ = 0;
  for (Worker& worker : workers_) {
    worker.done = false;
    worker.got_header = worker.got_body = 0;
  }
  const auto all = receive();
  if (!all || !*all) return all;
  if (first_->kind == ps::kGather) {
    result_.clear();
    for (const Worker& worker : workers_) {
      const auto body = std::span(worker.body).first(worker.got_body);
      result_.insert(result_.end(), body.begin(), body.end());
    }
  }
  if (const auto ok = answer(); !ok) return tl::unexpected(ok.error());
  return true;
}

bool PsServer::has_begun() const {
  return std::any_of(workers_.begin(), workers_.end(), [](const Worker& worker) { return worker.got_header > 0; });
}

// Ranks that leave between two collectives are none's trouble, until another rank begins the next one.
Result<bool> PsServer::receive() {
  Deadline limit = stall_limit();
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<std::size_t> who;
    std::string left;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (workers_[r].left) left += fmt::format("{}{}", left.empty() ? "rank " : ", rank ", r);
      if (workers_[r].left || workers_[r].done) continue;
      entries.push_back({workers_[r].fd.fd(), POLLIN, 0});
      who.push_back(r);
    }
    const bool begun = has_begun();
    if (begun && !left.empty()) {
      return fail(ErrorCode::kRemote, left + " closed the connection to the parameter server: it died or gave up");
    }
    if (who.empty()) return begun;
    if (!begun) {
      if (stopping_) return false;
      limit = stall_limit();
    }
    const int ready = poll(entries.data(), entries.size(), proxy::poll_timeout_ms(earlier(limit)));
    for (std::size_t i = 0; i < who.size() && ready > 0; ++i) {
      if (entries[i].revents == 0) continue;
      const auto moved = take(who[i]);
      if (!moved) return moved;
      if (*moved) limit = stall_limit();
    }
    if (has_begun() && steady_clock::now() >= limit) {
      return fail(ErrorCode::kRemote, fmt::format("{} sent the parameter server nothing of collective {} for {} s",
                                                  those(&Worker::done), sequence_, in_seconds(options_.stall_timeout)));
    }
  }
}

// Whether anything came.
Result<bool> PsServer::take(std::size_t rank) {
  Worker& worker = workers_[rank];
  const std::size_t before = worker.got_header + worker.got_body;
  const auto moved = [&] { return worker.got_header + worker.got_body > before; };
  if (worker.got_header < sizeof worker.header) {
    const auto bytes = std::as_writable_bytes(std::span(&worker.header, 1));
    const auto state = proxy::read_some(worker.fd.fd(), bytes, worker.got_header);
    worker.left = state == proxy::Io::kClosed;
    if (state != proxy::Io::kDone) return moved();
    if (const auto ok = check(rank); !ok) return tl::unexpected(ok.error());
  }
  while (worker.got_body < worker.header.length) {
    const std::size_t step = std::min<std::size_t>(worker.header.length, worker.got_body + kReadStep);
    if (worker.body.size() < step) worker.body.resize(step);
    const auto state = proxy::read_some(worker.fd.fd(), std::span(worker.body).first(step), worker.got_body);
    worker.left = state == proxy::Io::kClosed;
    if (state != proxy::Io::kDone) return moved();
  }
  worker.done = true;
  if (rank != 0) {
    bytes_in_ += worker.header.length;
    ++messages_in_;
  }
  add_up();
  return true;
}

Result<void> PsServer::check(std::size_t rank) {
  const ps::Header& header = workers_[rank].header;
  const auto wrong = [&](const std::string& what) {
    return fail(ErrorCode::kInvalidUsage, fmt::format("rank {} sent the parameter server {}", rank, what));
  };
  if (header.magic != ps::kMagic) {
    return wrong(fmt::format("a message that begins with {:#x}; allowed: {:#x}", header.magic, ps::kMagic));
  }
  if (header.kind != ps::kSum && header.kind != ps::kGather) {
    return wrong(fmt::format("a message of kind {}; allowed: {} (a sum) and {} (to gather)", header.kind,
                             static_cast<std::uint32_t>(ps::kSum), static_cast<std::uint32_t>(ps::kGather)));
  }
  if (header.rank != rank) return wrong(fmt::format("a message of rank {}; allowed: its own", header.rank));
  if (header.sequence != sequence_) {
    return wrong(fmt::format("collective {}; allowed: the next one, {}", header.sequence, sequence_));
  }
  const std::uint64_t most = header.kind == ps::kSum ? ps::kMostBytes : ps::kMostBytes / ranks();
  if (header.length > most) return wrong(fmt::format("{} bytes; allowed: at most {}", header.length, most));
  if (header.kind == ps::kSum && header.length % sizeof(float) != 0) {
    return wrong(fmt::format("{} bytes to add; allowed: a multiple of {}", header.length, sizeof(float)));
  }
  if (first_ == nullptr) {
    first_ = &header;
  } else if (header.kind != first_->kind || header.length != first_->length) {
    return wrong(fmt::format("kind {} of {} bytes, and rank {} kind {} of {}; allowed: the same from all", header.kind,
                             header.length, first_->rank, first_->kind, first_->length));
  }
  return {};
}

// What is there, in rank order, so that the sum has the same bits in each run.
void PsServer::add_up() {
  if (first_->kind != ps::kSum) return;
  for (; added_ < ranks() && workers_[added_].done; ++added_) {
    const Worker& worker = workers_[added_];
    if (added_ == 0) {
      result_.assign(worker.body.begin(), worker.body.begin() + static_cast<std::ptrdiff_t>(worker.got_body));
      continue;
    }
    const std::array<const void*, 2> both{result_.data(), worker.body.data()};
    paraexpress::sum_into(result_.data(), both, result_.size() / sizeof(float), paraexpress::DataType::kFloat32);
  }
}

// Whether anything went out. A worker that is gone is known to be with the next collective: the others get this one.
bool PsServer::put(std::size_t rank) {
  Worker& worker = workers_[rank];
  const std::size_t before = worker.sent;
  const auto state = proxy::write_some(worker.fd.fd(), worker.answer, worker.sent);
  worker.left = state == proxy::Io::kClosed;
  if (state == proxy::Io::kDone && rank != 0) {
    bytes_out_ += result_.size();
    ++messages_out_;
  }
  return worker.sent > before;
}

Result<void> PsServer::answer() {
  for (std::size_t r = 0; r < ranks(); ++r) {
    Worker& worker = workers_[r];
    ps::serialise({.kind = ps::kAnswer, .sequence = sequence_, .length = result_.size()}, result_, worker.answer);
    worker.sent = 0;
    if (!worker.left) put(r);
  }
  Deadline limit = stall_limit();
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<std::size_t> who;
    for (std::size_t r = 0; r < ranks(); ++r) {
      if (!workers_[r].waits()) continue;
      entries.push_back({workers_[r].fd.fd(), POLLOUT, 0});
      who.push_back(r);
    }
    if (who.empty()) return {};
    if (stopping_) limit = std::min(limit, steady_clock::now() + kPatienceAtEnd);
    const int ready = poll(entries.data(), entries.size(), proxy::poll_timeout_ms(earlier(limit)));
    for (std::size_t i = 0; i < who.size() && ready > 0; ++i) {
      if (entries[i].revents != 0 && put(who[i])) limit = stall_limit();
    }
    if (steady_clock::now() >= limit) {
      return fail(ErrorCode::kRemote,
                  fmt::format("rank {} does not take what the parameter server answers to collective {}", who.front(),
                              sequence_));
    }
  }
}

// In the middle of an answer an error would be taken for numbers: such a worker learns of the end by the connection's.
void PsServer::tell(const Error& error) {
  const ps::Message message = ps::error_message(error);
  const Deadline soon = steady_clock::now() + kErrorPatience;
  for (const Worker& worker : workers_) {
    if (!worker.fd || worker.left || (worker.sent > 0 && worker.waits())) continue;
    bool timed_out = false;
    (void)proxy::write_all(worker.fd.fd(), message, soon, timed_out);
  }
}

}  // namespace clustar::bench::trainer
