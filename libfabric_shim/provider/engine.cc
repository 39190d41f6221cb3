#include "libfabric_shim/provider/engine.h"

#include <fmt/format.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace clustar::libfabric_shim::provider {

Result<std::unique_ptr<Engine>> Engine::open(transport::Transport& transport, const Clock& clock, const Log& log,
                                             const ProviderSettings& settings, const transport::net::Address& address,
                                             AddressBook& book, Completions& completions) {
  std::unique_ptr<Engine> made(new Engine(transport, clock, log, settings, book, completions));
  auto listener = transport.listen(0, {});
  if (!listener) return tl::unexpected(listener.error());
  made->listener_ = std::move(*listener);
  auto reception = Reception::open(address, made->listener_->handle(), settings.eager_bytes, clock);
  if (!reception) return tl::unexpected(reception.error());
  made->reception_ = std::make_unique<Reception>(std::move(*reception));
  made->setup_.self = made->reception_->address();
  return made;
}

Engine::~Engine() = default;

bool Engine::send(Source to, Outgoing message) {
  auto& connection = outbound_[to];
  // One that failed has told all its messages so; a peer that is there again gets a new one.
  if (connection != nullptr && connection->failed()) connection.reset();
  if (connection == nullptr) connection = std::make_unique<Outbound>(setup_, book_.address(to));
  if (connection->outstanding() >= kSends) {
    progress();
    return false;
  }
  connection->submit(std::move(message));
  connection->progress();
  return true;
}

bool Engine::receive(const Operation& operation, bool tagged, Matcher::Receive want) {
  if (posted_.size() >= kReceives) return false;
  want.id = next_id_++;
  if (const auto message = matcher(tagged).post(want)) {
    deliver(operation, release(*message));
  } else {
    posted_.emplace(want.id, Posted{operation, tagged});
  }
  return true;
}

void Engine::look(Look look, const Operation& operation, Matcher::Receive want) {
  progress();
  Matcher& among = tagged_;
  const auto found = look == Look::kPeek ? among.peek(want) : among.claim(want);
  Completion completion{.operation = operation, .tag = want.tag};
  if (!found) {
    completion.error = FI_ENOMSG;
    return setup_.completions.complete(completion);
  }
  const Kept& kept = kept_.at(*found);
  completion.operation.buffer = nullptr;
  completion.bytes = kept.header.length;
  completion.tag = kept.header.tag;
  completion.data = kept.header.data;
  completion.has_data = kept.header.has_data;
  completion.source = kept.source;
  setup_.completions.complete(completion);
  if (look == Look::kClaim) claimed_[operation.context] = *found;
  if (look == Look::kDiscard) deliver({.report = false, .discards = true}, release(*found));
}

bool Engine::take(const Operation& operation, bool discard) {
  const auto found = claimed_.find(operation.context);
  if (found == claimed_.end()) return false;
  const Kept kept = release(found->second);
  claimed_.erase(found);
  if (!discard) {
    deliver(operation, kept);
  } else {
    deliver({.report = false, .discards = true}, kept);
    setup_.completions.complete({.operation = operation, .tag = kept.header.tag, .source = kept.source});
  }
  return true;
}

bool Engine::cancel(const void* context) {
  const auto found = std::find_if(posted_.begin(), posted_.end(),
                                  [&](const auto& each) { return each.second.operation.context == context; });
  if (found == posted_.end() || !matcher(found->second.tagged).cancel(found->first)) return false;
  const Operation operation = found->second.operation;
  posted_.erase(found);
  setup_.completions.complete({.operation = operation, .error = FI_ECANCELED});
  return true;
}

void Engine::arrived(const std::shared_ptr<Inbound>& from, const Header& header, std::span<const std::byte> payload) {
  const std::uint64_t id = next_id_++;
  const Source source = from->source();
  const auto receive =
      matcher(header.tagged).arrive({.id = id, .source = source, .tag = header.tag, .bytes = payload.size()});
  if (receive) {
    const auto posted = posted_.extract(*receive);
    deliver(posted.mapped().operation, from, header, source, payload);
    return;
  }
  kept_.emplace(id, Kept{header.kind == Kind::kRendezvous ? from : nullptr, header, source,
                         std::vector<std::byte>(payload.begin(), payload.end())});
}

// Then the transports hold their senders back, and nothing is lost.
bool Engine::full() const {
  if (tagged_.held_bytes() + untagged_.held_bytes() < setup_.settings.unexpected_bytes) return false;
  if (!std::exchange(warned_full_, true)) {
    setup_.log.warn(fmt::format(
        "clustar: {} unexpected messages hold FI_CLUSTAR_UNEXPECTED_BYTES={}; no more are taken until receives are "
        "posted for them, so a receive that waits for a later message waits for these",
        tagged_.unexpected() + untagged_.unexpected(), setup_.settings.unexpected_bytes));
  }
  return true;
}

void Engine::deliver(const Operation& operation, const std::shared_ptr<Inbound>& from, const Header& header,
                     Source source, std::span<const std::byte> payload) {
  if (header.kind == Kind::kRendezvous) return from->fetch(header, operation);
  const std::size_t bytes = std::min(payload.size(), operation.length);
  if (bytes > 0) std::memcpy(operation.buffer, payload.data(), bytes);
  const bool whole = bytes == payload.size();
  setup_.completions.complete({.operation = operation,
                               .bytes = bytes,
                               .tag = header.tag,
                               .data = header.data,
                               .has_data = header.has_data,
                               .source = source,
                               .error = whole ? 0 : FI_ETRUNC,
                               .overflow = payload.size() - bytes});
}

void Engine::deliver(const Operation& operation, const Kept& kept) {
  deliver(operation, kept.from, kept.header, kept.source, kept.payload);
}

Engine::Kept Engine::release(std::uint64_t message) { return std::move(kept_.extract(message).mapped()); }

void Engine::progress() {
  if (polls_++ % kAcceptPolls == 0) accept();
  for (auto& [to, connection] : outbound_) connection->progress();
  for (std::size_t i = 0; i < inbound_.size(); ++i) {
    // Kept alive: an unexpected message may be the last to name it.
    const std::shared_ptr<Inbound> connection = inbound_[i];
    connection->progress();
  }
  std::erase_if(inbound_, [this](const auto& connection) {
    if (!connection->failed()) return false;
    const auto back = outbound_.find(connection->source());
    if (back != outbound_.end()) back->second->suspect();
    return true;
  });
}

void Engine::accept() {
  if (const auto served = reception_->progress(); !served) setup_.log.warn("clustar: " + served.error().message);
  auto channel = listener_->poll_accept();
  if (!channel) return setup_.log.warn("clustar: " + channel.error().message);
  if (*channel == nullptr) return;
  auto connection = Inbound::open(setup_, *this, std::move(*channel));
  if (!connection) return setup_.log.warn("clustar: " + connection.error().message);
  inbound_.push_back(std::move(*connection));
}

bool Engine::drained() const {
  return std::all_of(outbound_.begin(), outbound_.end(),
                     [](const auto& each) { return each.second->failed() || each.second->leaving() == 0; });
}

}  // namespace clustar::libfabric_shim::provider
