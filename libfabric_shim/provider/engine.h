// The traffic of one endpoint: its connections, and the two matchers of messages with and without tags. Every call with
// the domain's lock held; bytes move in progress() only.
#pragma once

#include <memory>
#include <unordered_map>
#include <vector>

#include "libfabric_shim/provider/inbound.h"
#include "libfabric_shim/provider/outbound.h"
#include "libfabric_shim/provider/reception.h"

namespace clustar::libfabric_shim::provider {

// What FI_PEEK, FI_CLAIM and FI_DISCARD ask for.
enum class Look : std::uint8_t { kPeek, kClaim, kDiscard };

class Engine final : private Desk {
 public:
  static constexpr std::size_t kSends = 1024;
  static constexpr std::size_t kReceives = 65536;

  // `address` becomes the endpoint's, with the kernel's choice for port 0. Error: it is in use, or not this host's.
  static Result<std::unique_ptr<Engine>> open(transport::Transport& transport, const Clock& clock, const Log& log,
                                              const ProviderSettings& settings, const transport::net::Address& address,
                                              AddressBook& book, Completions& completions);
  ~Engine() override;

  const transport::net::Address& address() const { return setup_.self; }

  // False: kSends are outstanding.
  bool send(Source to, Outgoing message);
  // False: kReceives are.
  bool receive(const Operation& operation, bool tagged, Matcher::Receive want);
  // Completes with the message's envelope, or FI_ENOMSG. A claimed message waits for take(), by the context.
  void look(Look look, const Operation& operation, Matcher::Receive want);
  // Receives the message that was claimed with this context; without a buffer it is discarded. False: none was.
  bool take(const Operation& operation, bool discard);
  // Completes the receive with FI_ECANCELED. False: none with this context waits.
  bool cancel(const void* context);

  void progress();
  // Nothing that was sent is still here, but for what waits for receives of peers.
  bool drained() const;

 private:
  static constexpr unsigned kAcceptPolls = 16;  // a system call each, for what is rare
  struct Kept {
    std::shared_ptr<Inbound> from;  // of an offered payload
    Header header{};
    Source source = kAnySource;
    std::vector<std::byte> payload{};
  };
  struct Posted {
    Operation operation;
    bool tagged;
  };

  Engine(transport::Transport& transport, const Clock& clock, const Log& log, const ProviderSettings& settings,
         AddressBook& book, Completions& completions)
      : setup_{transport, clock, log, settings, {}, completions}, book_(book) {}

  Source source_of(const transport::net::Address& address) override { return book_.source_of(address); }
  void arrived(const std::shared_ptr<Inbound>& from, const Header& header, std::span<const std::byte> payload) override;
  bool full() const override;
  void deliver(const Operation& operation, const std::shared_ptr<Inbound>& from, const Header& header, Source source,
               std::span<const std::byte> payload);
  void deliver(const Operation& operation, const Kept& kept);
  Kept release(std::uint64_t message);
  void accept();
  Matcher& matcher(bool tagged) { return tagged ? tagged_ : untagged_; }

  Setup setup_;
  AddressBook& book_;
  std::unique_ptr<transport::Listener> listener_;
  std::unique_ptr<Reception> reception_;
  Matcher tagged_;
  Matcher untagged_;
  std::uint64_t next_id_ = 1;
  std::unordered_map<std::uint64_t, Posted> posted_;
  std::unordered_map<std::uint64_t, Kept> kept_;
  std::unordered_map<const void*, std::uint64_t> claimed_;  // by context
  std::unordered_map<Source, std::unique_ptr<Outbound>> outbound_;
  std::vector<std::shared_ptr<Inbound>> inbound_;
  unsigned polls_ = 0;
  mutable bool warned_full_ = false;
};

}  // namespace clustar::libfabric_shim::provider
