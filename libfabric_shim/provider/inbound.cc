#include "libfabric_shim/provider/inbound.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <utility>

namespace clustar::libfabric_shim::provider {

namespace net = transport::net;

Result<std::shared_ptr<Inbound>> Inbound::open(Setup& setup, Desk& desk,
                                               std::unique_ptr<transport::RecvChannel> channel) {
  std::shared_ptr<Inbound> made(new Inbound(setup, desk, std::move(channel)));
  made->room_ = Header::kSize + std::max({std::size_t{setup.settings.eager_bytes}, kInjectBytes, Hello::kSize});
  made->memory_.resize(kBuffers * made->room_);
  auto mr = made->channel_->reg_mr(gdr::MemoryRef::host(made->memory_.data(), made->memory_.size()));
  if (!mr) return tl::unexpected(mr.error());
  made->mr_ = std::move(*mr);
  made->post();
  if (made->failed_) return fail(ErrorCode::kRemote, "the connection broke before it was used");
  return made;
}

Inbound::~Inbound() {
  fetches_.clear();
  mr_.reset();
}

// All that are free, in turn. Of a peer that has closed, what was posted before may hold its last messages, so the
// error waits until they are taken.
void Inbound::post() {
  while (!failed_ && posted_.size() < kBuffers) {
    const std::size_t buffer = (front_ + posted_.size()) % kBuffers;
    const transport::RecvPart part{mr_.get(), buffer * room_, room_, 0};
    auto request = channel_->recv(std::span(&part, 1));
    if (!request && !posted_.empty()) return;
    if (!request) return fail_with(fi_error(request.error().code), request.error().message);
    if (*request == nullptr) return;
    posted_.push_back(*request);
  }
}

void Inbound::progress() {
  for (int i = 0; i < kMostAtOnce && !failed_ && !desk_.full(); ++i) {
    if (posted_.empty()) post();
    if (posted_.empty()) break;
    const auto tested = posted_.front()->test();
    if (!tested) {
      (void)finish_fetches();  // whole ones among them stay so
      fail_with(fi_error(tested.error().code), tested.error().message);
      break;
    }
    if (!tested->done) break;
    const std::size_t bytes = tested->sizes.empty() ? 0 : tested->sizes[0];
    const std::size_t buffer = front_;
    posted_.pop_front();
    front_ = (front_ + 1) % kBuffers;
    take(std::span<const std::byte>(memory_).subspan(buffer * room_, bytes));
    post();
  }
  if (failed_) return;
  const bool moved = finish_fetches() || active_ == 0;
  if (!failed_ && silence_.watches() && silence_.over(moved, setup_.clock.now())) {
    fail_with(FI_ETIMEDOUT,
              fmt::format("it sent none of {} payloads that it offered for CLUSTAR_STALL_TIMEOUT", active_));
  }
}

void Inbound::take(std::span<const std::byte> message) {
  const auto header = Header::parse(message);
  const bool first = source_ == kAnySource;
  if (!header || (header->kind == Kind::kHello) != first) {
    return fail_with(FI_EOTHER, "it sent what is no message of this provider's");
  }
  const auto payload = message.subspan(Header::kSize);
  if (!first) return desk_.arrived(shared_from_this(), *header, payload);
  const auto hello = Hello::parse(payload);
  if (!hello) return fail_with(FI_EOTHER, "it did not say who it is");
  source_ = desk_.source_of(net::Address(hello->endpoint));
}

void Inbound::fetch(const Header& header, const Operation& into) {
  Fetch made{header, into};
  if (failed_) return complete(made, FI_ECONNABORTED);
  fetches_.push_back(std::move(made));
  (void)start(fetches_.back());
}

bool Inbound::finish_fetches() {
  bool moved = false;
  for (std::size_t i = 0; i < fetches_.size() && !failed_;) {
    Fetch& fetch = fetches_[i];
    if (fetch.request == nullptr && !start(fetch)) {
      ++i;
      continue;
    }
    const auto tested = fetch.request->test();
    if (!tested) {
      fail_with(fi_error(tested.error().code), tested.error().message);
      return true;
    }
    if (!tested->done) {
      ++i;
      continue;
    }
    const Fetch over = std::move(fetch);
    --active_;
    fetches_.erase(fetches_.begin() + static_cast<std::ptrdiff_t>(i));
    complete(over, over.header.length > over.into.length ? FI_ETRUNC : 0);
    moved = true;
  }
  return moved;
}

// A shorter buffer gets the message's beginning: the channel truncates.
bool Inbound::start(Fetch& fetch) {
  if (active_ == kFetches) return false;
  const std::size_t length = std::min<std::uint64_t>(fetch.header.length, fetch.into.length);
  if (fetch.mr == nullptr && length > 0) {
    auto mr = channel_->reg_mr(gdr::MemoryRef::host(fetch.into.buffer, length));
    if (!mr) {
      fail_with(fi_error(mr.error().code), mr.error().message);
      return false;
    }
    fetch.mr = std::move(*mr);
  }
  const transport::RecvPart part{length > 0 ? fetch.mr.get() : mr_.get(), 0, length, fetch.header.slot + 1};
  auto request = channel_->recv(std::span(&part, 1));
  if (!request) {
    fail_with(fi_error(request.error().code), request.error().message);
    return false;
  }
  fetch.request = *request;
  if (fetch.request == nullptr) return false;
  ++active_;
  return true;
}

void Inbound::complete(const Fetch& fetch, int error) {
  const std::size_t bytes = std::min<std::uint64_t>(fetch.header.length, fetch.into.length);
  setup_.completions.complete({.operation = fetch.into,
                               .bytes = bytes,
                               .tag = fetch.header.tag,
                               .data = fetch.header.data,
                               .has_data = fetch.header.has_data,
                               .source = source_,
                               .error = error,
                               .overflow = fetch.header.length - bytes});
}

// The channel goes first, so that nothing writes to the memory of an operation that has completed. A peer that closed
// its endpoint ends so, too.
void Inbound::fail_with(int error, const std::string& why) {
  if (failed_) return;
  failed_ = true;
  const std::string text = fmt::format("clustar: receiving from {}: {}", channel_->peer().host, why);
  fetches_.empty() ? setup_.log.info(text) : setup_.log.warn(text);
  for (Fetch& fetch : fetches_) fetch.mr.reset();
  mr_.reset();
  channel_.reset();
  const auto fetches = std::exchange(fetches_, {});
  for (const Fetch& fetch : fetches) complete(fetch, error);
}

}  // namespace clustar::libfabric_shim::provider
