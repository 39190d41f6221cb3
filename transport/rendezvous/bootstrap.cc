#include "transport/rendezvous/bootstrap.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>
#include <utility>

#include "transport/base/file_descriptor.h"
#include "transport/rendezvous/socket_io.h"

namespace clustar::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A star around rank 0. Every frame is a header and `length` bytes, little-endian fields in host memory order: all
// ranks of a run are the same build on the same architecture, and the magic differs when the byte order does.
struct FrameHeader {
  std::uint64_t magic;
  std::uint32_t kind;
  std::uint32_t rank;
  std::uint64_t sequence;  // hello: number of ranks
  std::uint64_t length;
};
static_assert(sizeof(FrameHeader) == 32);

constexpr std::uint64_t kMagic = 0x70786f7270'636c75;
constexpr std::uint64_t kMaxFrame = std::uint64_t{1} << 32;
constexpr std::uint64_t kMaxErrorText = 4096;
enum Kind : std::uint32_t { kHello = 1, kWelcome = 2, kData = 3, kError = 4 };

using Bytes = std::vector<std::byte>;

std::span<const std::byte> bytes_of(const FrameHeader& header) { return std::as_bytes(std::span(&header, 1)); }

Bytes frame(Kind kind, int rank, std::uint64_t sequence, std::span<const std::byte> body) {
  const FrameHeader header{kMagic, kind, static_cast<std::uint32_t>(rank), sequence, body.size()};
  Bytes out(sizeof header + body.size());
  std::memcpy(out.data(), &header, sizeof header);
  if (!body.empty()) std::memcpy(out.data() + sizeof header, body.data(), body.size());
  return out;
}

Bytes error_frame(std::uint64_t sequence, const Error& error) {
  Bytes body(1 + std::min<std::size_t>(error.message.size(), kMaxErrorText - 1));
  body[0] = static_cast<std::byte>(error.code);
  std::memcpy(body.data() + 1, error.message.data(), body.size() - 1);
  return frame(kError, 0, sequence, body);
}

Error parse_error(std::span<const std::byte> body) {
  if (body.empty()) return Error{ErrorCode::kRemote, "rank 0 reported an error without a text"};
  const auto code = std::min(static_cast<std::uint8_t>(body[0]), static_cast<std::uint8_t>(ErrorCode::kInternal));
  return Error{static_cast<ErrorCode>(code),
               std::string(reinterpret_cast<const char*>(body.data()) + 1, body.size() - 1)};
}

double seconds(milliseconds time) { return static_cast<double>(time.count()) / 1e3; }

// Root-side state of one incoming frame.
struct Incoming {
  FrameHeader header{};
  Bytes body;
  std::size_t got_header = 0;
  std::size_t got_body = 0;
  bool done = false;
};

class StarBootstrap final : public Bootstrap {
 public:
  explicit StarBootstrap(Options options) : options_(std::move(options)) {
    if (options_.required <= 0 || options_.required > options_.size) options_.required = options_.size;
  }

  Result<void> open();
  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  Result<Bytes> all_gather(std::span<const std::byte> mine) override;
  Result<void> barrier() override;

 private:
  Result<void> open_root(const HostPort& address, Deadline deadline);
  Result<void> open_leaf(const HostPort& address, Deadline deadline);
  Result<bool> leaf_attempt(const HostPort& address, Deadline deadline);
  Result<void> admit(const FrameHeader& hello, FileDescriptor& fd);
  // Of the ranks below `end`.
  int missing(int end) const;
  bool may_go(int rank) const { return rank >= options_.required; }
  // One that may go has gone.
  Result<void> let_go(int rank, Incoming& in);
  std::string missing_ranks() const;

  Result<Bytes> gather_root(std::span<const std::byte> mine, Deadline deadline);
  Result<Bytes> gather_leaf(std::span<const std::byte> mine, Deadline deadline);
  Result<void> collect(std::vector<Incoming>& frames, std::size_t expected, Deadline deadline);
  Result<void> advance(int peer, Incoming& in, std::size_t expected);
  // Remembers the error, tells the other ranks when this is rank 0, and returns it.
  tl::unexpected<Error> break_down(ErrorCode code, std::string message);

  Options options_;
  std::vector<FileDescriptor> peers_;  // root: by rank, [0] unused; leaf: [0] is the root
  std::uint64_t sequence_ = 0;
  std::optional<Error> broken_;
};

tl::unexpected<Error> StarBootstrap::break_down(ErrorCode code, std::string message) {
  broken_ = Error{code, std::move(message)};
  if (options_.rank == 0) {
    const Bytes out = error_frame(sequence_, *broken_);
    const Deadline soon = steady_clock::now() + milliseconds(500);
    for (const FileDescriptor& peer : peers_) {
      bool timed_out = false;
      if (peer) write_all(peer.fd(), out, soon, timed_out);
    }
  }
  return tl::unexpected(*broken_);
}

Result<void> StarBootstrap::open() {
  if (options_.size < 1 || options_.rank < 0 || options_.rank >= options_.size) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("rank {} of {} is not possible; ranks are 0 to size - 1", options_.rank, options_.size));
  }
  peers_.resize(static_cast<std::size_t>(options_.rank == 0 ? options_.size : 1));
  if (options_.size == 1) return {};
  auto address = parse_host_port(options_.root);
  if (!address) return tl::unexpected(address.error());
  const Deadline deadline = steady_clock::now() + options_.join_timeout;
  return options_.rank == 0 ? open_root(*address, deadline) : open_leaf(*address, deadline);
}

std::string StarBootstrap::missing_ranks() const {
  std::string text;
  for (int r = 1; r < options_.required; ++r) {
    if (!peers_[static_cast<std::size_t>(r)]) text += fmt::format("{}{}", text.empty() ? "" : ", ", r);
  }
  return text;
}

int StarBootstrap::missing(int end) const {
  int count = 0;
  for (int r = 1; r < end; ++r) count += peers_[static_cast<std::size_t>(r)] ? 0 : 1;
  return count;
}

Result<void> StarBootstrap::let_go(int rank, Incoming& in) {
  peers_[static_cast<std::size_t>(rank)].close();
  in.body.clear();
  in.done = true;
  return {};
}

// A hello with our magic is from a rank: contradictions are errors, not strangers.
Result<void> StarBootstrap::admit(const FrameHeader& hello, FileDescriptor& fd) {
  const auto r = static_cast<std::size_t>(hello.rank);
  std::string reason;
  if (hello.sequence != static_cast<std::uint64_t>(options_.size)) {
    reason = fmt::format("rank {} expects {} ranks, rank 0 expects {}", hello.rank, hello.sequence, options_.size);
  } else if (r == 0 || r >= peers_.size()) {
    reason = fmt::format("rank {} is not one of 1 to {}", hello.rank, options_.size - 1);
  } else if (peers_[r]) {
    reason = fmt::format("two processes say that they are rank {}", hello.rank);
  }
  if (reason.empty()) {
    peers_[r] = std::move(fd);
    return {};
  }
  bool timed_out = false;
  write_all(fd.fd(), error_frame(0, Error{ErrorCode::kInvalidUsage, reason}), steady_clock::now() + milliseconds(500),
            timed_out);
  return break_down(ErrorCode::kInvalidUsage, reason);
}

Result<void> StarBootstrap::open_root(const HostPort& address, Deadline deadline) {
  auto listener = tcp_listen(address);
  if (!listener) return tl::unexpected(listener.error());
  struct Newcomer {
    FileDescriptor fd;
    FrameHeader hello{};
    std::size_t got = 0;
  };
  constexpr std::size_t kMaxNewcomers = 256;  // silent strangers must not use up the descriptors
  std::vector<Newcomer> newcomers;
  const Deadline patience = steady_clock::now() + options_.join_timeout / 2;
  for (;;) {
    const bool whole = missing(options_.required) == 0;
    if (missing(options_.size) == 0 || (whole && steady_clock::now() >= patience)) break;
    std::vector<pollfd> entries{{listener->fd(), POLLIN, 0}};
    for (const Newcomer& n : newcomers) entries.push_back({n.fd.fd(), POLLIN, 0});
    const int ready = poll(entries.data(), entries.size(), poll_timeout_ms(whole ? patience : deadline));
    if (ready <= 0 && !whole && steady_clock::now() >= deadline) {
      return break_down(ErrorCode::kRemote, fmt::format("rank(s) {} did not join {} within {} s", missing_ranks(),
                                                        options_.root, seconds(options_.join_timeout)));
    }
    for (Newcomer& n : newcomers) {
      const Io state = read_some(n.fd.fd(), std::as_writable_bytes(std::span(&n.hello, 1)), n.got);
      if (state == Io::kAgain) continue;
      if (state == Io::kDone && n.hello.magic == kMagic && n.hello.kind == kHello && n.hello.length == 0) {
        if (auto admitted = admit(n.hello, n.fd); !admitted) return admitted;
      }
      n.fd.close();
    }
    std::erase_if(newcomers, [](const Newcomer& n) { return !n.fd; });
    while (FileDescriptor fd = tcp_accept(listener->fd())) {
      if (newcomers.size() == kMaxNewcomers) newcomers.erase(newcomers.begin());
      newcomers.push_back(Newcomer{std::move(fd)});
    }
  }
  for (int r = 1; r < options_.size; ++r) {
    bool timed_out = false;
    FileDescriptor& peer = peers_[static_cast<std::size_t>(r)];
    if (peer && !write_all(peer.fd(), frame(kWelcome, 0, 0, {}), deadline, timed_out)) {
      if (may_go(r)) {
        peer.close();
        continue;
      }
      return break_down(ErrorCode::kRemote, fmt::format("rank {} left while the ranks were joining", r));
    }
  }
  return {};
}

// True: joined. False: nobody there yet, try again.
Result<bool> StarBootstrap::leaf_attempt(const HostPort& address, Deadline deadline) {
  auto fd = tcp_connect(address, deadline);
  if (!fd) {
    if (fd.error().code != ErrorCode::kRemote) return tl::unexpected(fd.error());
    return false;
  }
  const FrameHeader hello{kMagic, kHello, static_cast<std::uint32_t>(options_.rank),
                          static_cast<std::uint64_t>(options_.size), 0};
  bool timed_out = false;
  FrameHeader answer{};
  if (!write_all(fd->fd(), bytes_of(hello), deadline, timed_out) ||
      !read_all(fd->fd(), std::as_writable_bytes(std::span(&answer, 1)), deadline, timed_out)) {
    return false;
  }
  if (answer.magic != kMagic) return false;
  if (answer.kind == kError && answer.length <= kMaxErrorText) {
    Bytes body(answer.length);
    if (!read_all(fd->fd(), body, deadline, timed_out)) return false;
    return tl::unexpected(parse_error(body));
  }
  if (answer.kind != kWelcome || answer.length != 0) return false;
  peers_[0] = std::move(*fd);
  return true;
}

Result<void> StarBootstrap::open_leaf(const HostPort& address, Deadline deadline) {
  // Rank 0 uses up join_timeout before it says who is missing: that answer is worth a little patience.
  const Deadline patience = deadline + std::min<milliseconds>(options_.join_timeout / 10, milliseconds(2000));
  milliseconds pause(5);
  while (steady_clock::now() < deadline) {
    auto joined = leaf_attempt(address, patience);
    if (!joined) return tl::unexpected(joined.error());
    if (*joined) return {};
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(100));
  }
  return fail(ErrorCode::kRemote, fmt::format("rank {} could not join rank 0 at {} within {} s", options_.rank,
                                              options_.root, seconds(options_.join_timeout)));
}

Result<void> StarBootstrap::advance(int peer, Incoming& in, std::size_t expected) {
  const int fd = peers_[static_cast<std::size_t>(peer)].fd();
  if (in.got_header < sizeof in.header) {
    const Io state = read_some(fd, std::as_writable_bytes(std::span(&in.header, 1)), in.got_header);
    if (state == Io::kAgain) return {};
    if (state == Io::kClosed) {
      if (may_go(peer)) return let_go(peer, in);
      return break_down(ErrorCode::kRemote,
                        fmt::format("rank {} closed its bootstrap connection: it died or gave up", peer));
    }
    const FrameHeader& h = in.header;
    if (h.magic != kMagic || h.kind != kData || h.sequence != sequence_) {
      return break_down(ErrorCode::kInvalidUsage,
                        fmt::format("rank {} is not in the same bootstrap call as rank 0 (its call {}, ours {})", peer,
                                    h.sequence, sequence_));
    }
    if (h.length != expected) {
      return break_down(ErrorCode::kInvalidUsage,
                        fmt::format("rank {} gave {} bytes to all_gather, rank 0 gave {}: all must give the same", peer,
                                    h.length, expected));
    }
    in.body.resize(expected);
  }
  const Io state = read_some(fd, in.body, in.got_body);
  if (state == Io::kClosed) {
    if (may_go(peer)) return let_go(peer, in);
    return break_down(ErrorCode::kRemote, fmt::format("rank {} died in the middle of an all_gather", peer));
  }
  in.done = state == Io::kDone;
  return {};
}

Result<void> StarBootstrap::collect(std::vector<Incoming>& frames, std::size_t expected, Deadline deadline) {
  std::optional<Deadline> grace;
  for (;;) {
    std::vector<pollfd> entries;
    std::vector<int> ranks;
    for (int r = 1; r < options_.size; ++r) {
      if (frames[static_cast<std::size_t>(r)].done || !peers_[static_cast<std::size_t>(r)]) continue;
      entries.push_back({peers_[static_cast<std::size_t>(r)].fd(), POLLIN, 0});
      ranks.push_back(r);
    }
    if (ranks.empty()) return {};
    if (may_go(ranks.front()) && !grace) grace = steady_clock::now() + kGrace;
    if (grace && steady_clock::now() >= *grace) {
      for (const int r : ranks) (void)let_go(r, frames[static_cast<std::size_t>(r)]);
      return {};
    }
    const int ready =
        poll(entries.data(), entries.size(), poll_timeout_ms(std::min(deadline, grace.value_or(deadline))));
    if (ready <= 0 && steady_clock::now() >= deadline) {
      return break_down(ErrorCode::kRemote, fmt::format("rank {} did not reach the bootstrap call within {} s",
                                                        ranks.front(), seconds(options_.call_timeout)));
    }
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      if (ready <= 0 || entries[i].revents == 0) continue;
      auto advanced = advance(ranks[i], frames[static_cast<std::size_t>(ranks[i])], expected);
      if (!advanced) return advanced;
    }
  }
}

Result<Bytes> StarBootstrap::gather_root(std::span<const std::byte> mine, Deadline deadline) {
  std::vector<Incoming> frames(peers_.size());
  if (auto collected = collect(frames, mine.size(), deadline); !collected) return tl::unexpected(collected.error());
  Bytes all(mine.size() * peers_.size());
  std::copy(mine.begin(), mine.end(), all.begin());
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    if (frames[r].body.size() != mine.size()) continue;
    std::copy(frames[r].body.begin(), frames[r].body.end(), all.begin() + static_cast<std::ptrdiff_t>(r * mine.size()));
  }
  const Bytes out = frame(kData, 0, sequence_, all);
  // Of all that may go together.
  const Deadline grace = std::min<Deadline>(deadline, steady_clock::now() + kGrace);
  for (std::size_t r = 1; r < peers_.size(); ++r) {
    bool timed_out = false;
    if (!peers_[r]) continue;
    const bool may = may_go(static_cast<int>(r));
    if (!write_all(peers_[r].fd(), out, may ? grace : deadline, timed_out)) {
      if (may) {
        peers_[r].close();
        continue;
      }
      return break_down(ErrorCode::kRemote, fmt::format("rank {} {} the result of an all_gather", r,
                                                        timed_out ? "does not take" : "died before it took"));
    }
  }
  return all;
}

Result<Bytes> StarBootstrap::gather_leaf(std::span<const std::byte> mine, Deadline deadline) {
  const Deadline patience = deadline + std::min<milliseconds>(options_.call_timeout / 10, milliseconds(2000));
  const int fd = peers_[0].fd();
  bool timed_out = false;
  const auto lost = [&]() -> Result<Bytes> {
    return break_down(ErrorCode::kRemote,
                      timed_out ? fmt::format("no answer from rank 0 (which waits for every rank) within {} s",
                                              seconds(options_.call_timeout))
                                : std::string("rank 0 closed its bootstrap connection: it died or gave up"));
  };
  // A failed write is no verdict yet: rank 0 may have left an error frame that says more.
  const bool written = write_all(fd, frame(kData, options_.rank, sequence_, mine), patience, timed_out);
  if (!written && timed_out) return lost();
  FrameHeader header{};
  if (!read_all(fd, std::as_writable_bytes(std::span(&header, 1)), patience, timed_out)) return lost();
  if (header.magic != kMagic || header.length > kMaxFrame ||
      (header.kind == kError ? header.length > kMaxErrorText
                             : header.kind != kData || header.sequence != sequence_ ||
                                   header.length != mine.size() * static_cast<std::size_t>(options_.size))) {
    return break_down(ErrorCode::kInternal, "rank 0 sent a bootstrap frame that does not fit the call");
  }
  Bytes body(header.length);
  if (!read_all(fd, body, patience, timed_out)) return lost();
  if (header.kind == kError) {
    broken_ = parse_error(body);
    return tl::unexpected(*broken_);
  }
  return body;
}

Result<Bytes> StarBootstrap::all_gather(std::span<const std::byte> mine) {
  if (broken_) return tl::unexpected(*broken_);
  if (mine.size() > kMaxFrame / static_cast<std::uint64_t>(options_.size)) {
    return fail(ErrorCode::kInvalidArgument, "all_gather carries at most 4 GiB over all ranks");
  }
  if (options_.size == 1) return Bytes(mine.begin(), mine.end());
  ++sequence_;
  const Deadline deadline = steady_clock::now() + options_.call_timeout;
  return options_.rank == 0 ? gather_root(mine, deadline) : gather_leaf(mine, deadline);
}

Result<void> StarBootstrap::barrier() {
  auto all = all_gather({});
  if (!all) return tl::unexpected(all.error());
  return {};
}

// First port of the range that the kernel gives to outgoing connections; ports below it stay free until we bind them.
int first_ephemeral_port() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  return file >> first && first > 1024 ? first : 32768;
}

std::optional<int> bound_port(int wanted) {
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(wanted));
  socklen_t length = sizeof address;
  if (!fd || bind(fd.fd(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      getsockname(fd.fd(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return std::nullopt;
  }
  return ntohs(address.sin_port);
}

}  // namespace

Result<std::unique_ptr<Bootstrap>> Bootstrap::join(const Options& options) {
  auto bootstrap = std::make_unique<StarBootstrap>(options);
  if (auto opened = bootstrap->open(); !opened) return tl::unexpected(opened.error());
  return std::unique_ptr<Bootstrap>(std::move(bootstrap));
}

Result<std::string> Bootstrap::pick_loopback_root() {
  std::random_device random;
  const int end = first_ephemeral_port();
  const int begin = std::max(1025, end / 2);
  for (int attempt = 0; attempt < 100; ++attempt) {
    // After enough misses the kernel's own choice (port 0) will do.
    const bool last_resort = attempt >= 64 || begin >= end;
    const int wanted = last_resort ? 0 : begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
    if (const auto port = bound_port(wanted)) return fmt::format("127.0.0.1:{}", *port);
  }
  return fail(ErrorCode::kSystem, "no free TCP port on 127.0.0.1; check the limits on open files and sockets");
}

}  // namespace clustar::rendezvous
