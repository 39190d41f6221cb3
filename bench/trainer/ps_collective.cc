#include "bench/trainer/ps_collective.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "bench/trainer/failed_pending.h"

namespace clustar::bench::trainer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kUnbounded = std::chrono::hours(24 * 365);

// The server uses up its time before it says who is missing: that answer is worth a little more.
milliseconds with_grace(milliseconds time) {
  return time.count() > 0 ? time + std::min<milliseconds>(time / 10, milliseconds(2000)) : kUnbounded;
}

using ControlName = std::array<char, 32>;

ControlName congestion_control_of(int fd) {
  ControlName name{};
  socklen_t length = name.size() - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &length) != 0) return {"unknown"};
  return name;
}

// Each once. Rank 0's connection stays on its host, and says nothing of the network's.
std::string names_of(std::span<const std::byte> by_rank) {
  std::string all;
  std::vector<std::string> known;
  const std::size_t first = by_rank.size() > sizeof(ControlName) ? sizeof(ControlName) : 0;
  for (std::size_t at = first; at + sizeof(ControlName) <= by_rank.size(); at += sizeof(ControlName)) {
    ControlName name{};
    std::memcpy(name.data(), by_rank.data() + at, name.size() - 1);
    if (std::find(known.begin(), known.end(), name.data()) != known.end()) continue;
    known.emplace_back(name.data());
    all += (all.empty() ? "" : ", ") + known.back();
  }
  return all;
}

Error not_the_hosts_memory() {
  return {ErrorCode::kInvalidArgument,
          "the parameter server's collectives work on host memory; give a buffer that map() made and no event"};
}

Error too_much(std::size_t bytes, std::uint64_t most) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{} bytes in one message to the parameter server; allowed: at most {}", bytes, most)};
}

}  // namespace

class PsCollective::Waiting final : public Pending {
 public:
  Waiting(PsCollective& collective, std::shared_ptr<Operation> operation)
      : collective_(collective), operation_(std::move(operation)) {}
  ~Waiting() override { (void)wait(); }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  Result<CollectiveOutcome> wait() override {
    while (!operation_->outcome) collective_.run_next();
    return *operation_->outcome;
  }
  Result<void> hold_back(Stream) override {
    const auto outcome = wait();
    return outcome ? Result<void>() : tl::unexpected(outcome.error());
  }

 private:
  PsCollective& collective_;
  std::shared_ptr<Operation> operation_;
};

Result<std::unique_ptr<PsCollective>> PsCollective::create(proxy::Bootstrap& bootstrap, const Options& options) {
  std::unique_ptr<PsCollective> made(new PsCollective(bootstrap));
  if (auto ok = made->connect(bootstrap, options); !ok) return tl::unexpected(ok.error());
  return made;
}

Result<void> PsCollective::connect(proxy::Bootstrap& bootstrap, const Options& options) {
  const auto root = proxy::parse_host_port(options.root);
  if (!root) return tl::unexpected(root.error());
  std::uint32_t port = 0;
  std::optional<Error> deaf;
  if (rank_ == 0) {
    auto server = PsServer::listen(root->host, {.ranks = size_,
                                                .token = options.token,
                                                .join_timeout = options.join_timeout,
                                                .stall_timeout = options.stall_timeout});
    if (server) {
      server_ = std::move(*server);
      port = server_->port();
      server_->start();
    } else {
      deaf = server.error();
    }
  }
  const auto ports = bootstrap.all_gather(std::as_bytes(std::span(&port, 1)));
  if (deaf) return tl::unexpected(*deaf);
  if (!ports) return tl::unexpected(ports.error());
  std::memcpy(&port, ports->data(), sizeof port);
  if (port == 0) return fail(ErrorCode::kRemote, "rank 0 could not start its parameter server");

  const bool is_v6 = root->host.find(':') != std::string::npos;
  server_address_ = fmt::format(fmt::runtime(is_v6 ? "[{}]:{}" : "{}:{}"), root->host, port);
  patience_ = with_grace(options.join_timeout);
  auto connection = proxy::tcp_connect({root->host, std::to_string(port)}, steady_clock::now() + options.join_timeout);
  if (!connection) {
    return fail(connection.error().code, fmt::format("rank {} cannot connect to the parameter server at {}: {}", rank_,
                                                     server_address_, connection.error().message));
  }
  connection_ = std::move(*connection);
  ps::serialise({.kind = ps::kHello, .rank = static_cast<std::uint32_t>(rank_), .sequence = options.token}, {},
                message_);
  if (auto ok = send(message_); !ok) return ok;
  if (auto ok = receive_header(ps::kWelcome, 0); !ok) return ok;
  patience_ = with_grace(options.stall_timeout);
  const ControlName control = congestion_control_of(connection_.fd());
  const auto controls = bootstrap.all_gather(std::as_bytes(std::span(control)));
  if (!controls) return tl::unexpected(controls.error());
  congestion_control_ = names_of(*controls);
  return {};
}

std::unique_ptr<Pending> PsCollective::all_reduce(Buffer values, std::size_t count, Precision type, Event ready,
                                                  float*) {
  if (type != Precision::kFloat32) return sums_float32_only("the parameter server");
  if (!values.on_host_alone() || ready.handle != nullptr) return failed_pending(not_the_hosts_memory());
  const std::size_t bytes = count * sizeof(float);
  if (bytes > ps::kMostBytes) return failed_pending(too_much(bytes, ps::kMostBytes));
  return add({.kind = ps::kSum, .from = {values.host, bytes}, .into = {values.host, bytes}});
}

std::unique_ptr<Pending> PsCollective::all_gather(Buffer own, Buffer all, std::size_t bytes, Event ready) {
  if (!own.on_host_alone() || !all.on_host_alone() || ready.handle != nullptr)
    return failed_pending(not_the_hosts_memory());
  const auto ranks = static_cast<std::size_t>(size_);
  if (bytes > ps::kMostBytes / ranks) return failed_pending(too_much(bytes, ps::kMostBytes / ranks));
  return add({.kind = ps::kGather, .from = {own.host, bytes}, .into = {all.host, bytes * ranks}});
}

std::unique_ptr<Pending> PsCollective::add(Operation operation) {
  waiting_.push_back(std::make_shared<Operation>(std::move(operation)));
  return std::make_unique<Waiting>(*this, waiting_.back());
}

void PsCollective::run_next() {
  const std::shared_ptr<Operation> operation = waiting_.front();
  waiting_.pop_front();
  const auto start = steady_clock::now();
  const auto done = broken_ ? tl::unexpected(*broken_) : exchange(*operation);
  if (done) {
    operation->outcome =
        CollectiveOutcome{.seconds = std::chrono::duration<double>(steady_clock::now() - start).count()};
  } else {
    operation->outcome = tl::unexpected(done.error());
  }
}

Result<void> PsCollective::exchange(const Operation& operation) {
  ++sequence_;
  ps::serialise({.kind = operation.kind,
                 .rank = static_cast<std::uint32_t>(rank_),
                 .sequence = sequence_,
                 .length = operation.from.size()},
                operation.from, message_);
  if (auto ok = send(message_); !ok) return ok;
  if (auto ok = receive_header(ps::kAnswer, operation.into.size()); !ok) return ok;
  message_.resize(operation.into.size());
  if (auto ok = receive(message_); !ok) return ok;
  if (!message_.empty()) std::memcpy(operation.into.data(), message_.data(), message_.size());
  if (rank_ == 0) return {};
  traffic_ += {.bytes_sent = operation.from.size(),
               .bytes_received = operation.into.size(),
               .messages_sent = 1,
               .messages_received = 1};
  return {};
}

// Also returns before all is sent, when the server closed or has said something, which then can only be an error: it
// is read next.
Result<void> PsCollective::send(std::span<const std::byte> message) {
  auto limit = steady_clock::now() + patience_;
  for (std::size_t sent = 0;;) {
    const std::size_t before = sent;
    if (proxy::write_some(connection_.fd(), message, sent) != proxy::Io::kAgain) return {};
    if (sent > before) limit = steady_clock::now() + patience_;
    if (!proxy::wait_for(connection_.fd(), POLLIN | POLLOUT, limit)) {
      return break_down({ErrorCode::kRemote, "the parameter server, in rank 0's process, takes nothing any more"});
    }
    if (proxy::wait_for(connection_.fd(), POLLIN, steady_clock::now())) return {};
  }
}

Result<void> PsCollective::receive(std::span<std::byte> into) {
  auto limit = steady_clock::now() + patience_;
  for (std::size_t got = 0;;) {
    const std::size_t before = got;
    const auto state = proxy::read_some(connection_.fd(), into, got);
    if (state == proxy::Io::kDone) return {};
    if (state == proxy::Io::kClosed) {
      return break_down({ErrorCode::kRemote,
                         "rank 0, whose process is the parameter server, closed the connection: it died or gave up"});
    }
    if (got > before) limit = steady_clock::now() + patience_;
    if (!proxy::wait_for(connection_.fd(), POLLIN, limit)) {
      return break_down({ErrorCode::kRemote, fmt::format("no answer from the parameter server, in rank 0's process, "
                                                         "which waits for every rank, within {} s",
                                                         patience_.count() / 1000)});
    }
  }
}

Result<void> PsCollective::receive_header(ps::Kind kind, std::uint64_t length) {
  ps::Header header;
  if (auto ok = receive(std::as_writable_bytes(std::span(&header, 1))); !ok) return ok;
  if (header.magic == ps::kMagic && header.kind == ps::kError && header.length <= ps::kMostErrorText) {
    ps::Message text(header.length);
    if (auto ok = receive(text); !ok) return ok;
    return break_down(ps::parse_error(text));
  }
  if (header.magic == ps::kMagic && header.kind == kind && header.sequence == sequence_ && header.length == length)
    return {};
  return break_down({ErrorCode::kInvalidUsage,
                     fmt::format("the parameter server sent {:#x}, kind {}, collective {}, {} bytes; allowed: {:#x}, "
                                 "kind {}, collective {}, {} bytes",
                                 header.magic, header.kind, header.sequence, header.length, ps::kMagic,
                                 static_cast<std::uint32_t>(kind), sequence_, length)});
}

// The end of the connection lets the server tell all others.
tl::unexpected<Error> PsCollective::break_down(Error error) {
  if (!broken_) broken_ = std::move(error);
  if (connection_) shutdown(connection_.fd(), SHUT_RDWR);
  return tl::unexpected(*broken_);
}

void PsCollective::abort() {
  (void)break_down({ErrorCode::kRemote, fmt::format("rank {} aborted its collectives", rank_)});
}

Result<void> PsCollective::close() {
  if (!broken_) broken_ = Error{ErrorCode::kInvalidUsage, fmt::format("rank {} closed its collectives", rank_)};
  connection_.close();
  if (server_) server_->stop();
  return {};
}

std::optional<Traffic> PsCollective::traffic() const { return server_ ? server_->traffic() : traffic_; }

}  // namespace clustar::bench::trainer
