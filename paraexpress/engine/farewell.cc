#include "paraexpress/engine/farewell.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace clustar::paraexpress {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kHead = 8;

std::byte byte_of(std::uint64_t value, int shift) { return static_cast<std::byte>(value >> shift & 0xff); }

}  // namespace

Blame blame(Member guilty, const Error& error) {
  return {guilty, {error.code, fmt::format("rank {}: {}", guilty, error.message)}};
}

Blame who_failed(Watch& watch, Member peer, const Error& error) {
  // Who gave up because of a third rank has said so before it closed.
  constexpr auto kPatience = std::chrono::milliseconds(200);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  do {
    if (auto found = watch.look()) return *found;
    std::this_thread::yield();
  } while (std::chrono::steady_clock::now() < until && watch.silent(peer));
  return blame(peer, error);
}

FarewellBytes encode_farewell(const std::optional<Blame>& blame) {
  FarewellBytes bytes{};
  bytes[0] = std::byte{kVersion};
  if (!blame) return bytes;
  const std::size_t length = std::min(blame->error.message.size(), kFarewellBytes - kHead);
  bytes[1] = blame->guilty == kNobody ? std::byte{2} : std::byte{1};
  for (int i = 0; i < 2; ++i) bytes[2 + static_cast<std::size_t>(i)] = byte_of(length, 8 * (1 - i));
  for (int i = 0; i < 4; ++i) bytes[4 + static_cast<std::size_t>(i)] = byte_of(blame->guilty, 8 * (3 - i));
  std::memcpy(bytes.data() + kHead, blame->error.message.data(), length);
  return bytes;
}

std::optional<Farewell> parse_farewell(const FarewellBytes& bytes, std::uint32_t ranks) {
  const auto number = [&](std::size_t at, std::size_t width) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < width; ++i) value = value << 8 | static_cast<std::uint64_t>(bytes[at + i]);
    return value;
  };
  if (bytes[0] != std::byte{kVersion}) return std::nullopt;
  if (bytes[1] == std::byte{0}) return Farewell{};
  const std::uint64_t length = number(2, 2), guilty = number(4, 4);
  const bool stalled = bytes[1] == std::byte{2};
  if (!stalled && (bytes[1] != std::byte{1} || guilty >= ranks)) return std::nullopt;
  if (length > kFarewellBytes - kHead) return std::nullopt;
  std::string text(reinterpret_cast<const char*>(bytes.data()) + kHead, length);
  // It goes to terminals and logs.
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  return Farewell{Blame{stalled ? kNobody : static_cast<Member>(guilty), {ErrorCode::kRemote, std::move(text)}}};
}

Result<void> Farewells::open() {
  heard_.resize(ranks_);
  states_.resize(ranks_);
  auto heard = mesh_.reg_mr(heard_.data(), heard_.size() * kFarewellBytes);
  if (!heard) return tl::unexpected(heard.error());
  heard_mr_ = std::move(*heard);
  auto said = mesh_.reg_mr(said_.data(), said_.size());
  if (!said) return tl::unexpected(said.error());
  said_mr_ = std::move(*said);
  for (Member peer = 0; peer < ranks_; ++peer) {
    if (peer == rank_) continue;
    const transport::RecvPart part{heard_mr_->to_receive[peer].get(), peer * kFarewellBytes, kFarewellBytes, kTag};
    auto request = mesh_.from(peer).recv({&part, 1});
    if (!request) return tl::unexpected(blame(peer, request.error()).error);
    if (*request == nullptr) return fail(ErrorCode::kInternal, "a channel that is new takes no receive");
    states_[peer].request = *request;
  }
  return {};
}

std::optional<Blame> Farewells::hear(Member peer) {
  State& state = states_[peer];
  const auto progress = state.request->test();
  if (!progress) {
    state.request = nullptr;
    return blame(peer, progress.error());
  }
  if (!progress->done) return std::nullopt;
  state.request = nullptr;
  const auto farewell = progress->sizes[0] == kFarewellBytes ? parse_farewell(heard_[peer], ranks_) : std::nullopt;
  if (!farewell) {
    return blame(peer, {ErrorCode::kRemote, "its last word makes no sense; do all ranks have the same version?"});
  }
  state.left = !farewell->blame;
  return farewell->blame;
}

std::optional<Blame> Farewells::look() {
  for (Member peer = 0; peer < ranks_; ++peer) {
    if (!silent(peer)) continue;
    if (auto found = hear(peer)) return found;
  }
  return std::nullopt;
}

std::optional<Blame> Farewells::part(const std::optional<Blame>& what, Duration limit) {
  said_ = encode_farewell(what);
  for (Member peer = 0; peer < ranks_; ++peer) states_[peer].to_send = peer != rank_ && mesh_.has(peer);
  std::optional<Blame> first;
  const auto until = std::chrono::steady_clock::now() + limit;
  for (bool open = true; open && std::chrono::steady_clock::now() < until;) {
    open = false;
    for (Member peer = 0; peer < ranks_; ++peer) {
      State& state = states_[peer];
      if (state.to_send) {
        const transport::FlowTag flow{.traffic_class = 0, .urgency = transport::Urgency::kBlocking};
        auto sent = mesh_.to(peer).send(*said_mr_->to_send[peer], 0, kFarewellBytes, kTag, flow);
        state.to_send = sent && *sent == nullptr;
        if (sent) state.sending = *sent;
      }
      if (state.sending != nullptr) {
        const auto progress = state.sending->test();
        if (!progress || progress->done) state.sending = nullptr;
      }
      if (state.request != nullptr) {
        if (auto found = hear(peer); found && !first) first = std::move(found);
      }
      open = open || state.to_send || state.sending != nullptr || state.request != nullptr;
    }
    std::this_thread::yield();
  }
  return first;
}

std::optional<Blame> Farewells::last_word(const std::optional<Blame>& why, Duration limit) {
  const auto heard = part(why, limit);
  if (!why) return std::nullopt;
  if (why->guilty == kNobody && heard && heard->guilty != kNobody) return heard;
  return resolve(*why);
}

Blame Farewells::resolve(const Blame& what) const {
  if (what.guilty != kNobody) return what;
  for (Member peer = 0; peer < ranks_; ++peer) {
    if (silent(peer)) return blame(peer, {ErrorCode::kRemote, "it does not answer; " + what.error.message});
  }
  return what;
}

}  // namespace clustar::paraexpress
