// What endpoints and their engines say to each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "libfabric_shim/provider/core/matcher.h"
#include "libfabric_shim/provider/core/wire.h"
#include "libfabric_shim/provider/settings.h"
#include "transport/api/transport.h"
#include "transport/base/log.h"
#include "transport/net/socket.h"

namespace clustar::libfabric_shim::provider {

// One call of fi_send, fi_trecv or their like.
struct Operation {
  void* context = nullptr;
  std::byte* buffer = nullptr;
  std::size_t length = 0;
  std::uint64_t flags = 0;  // of its completion: FI_SEND | FI_TAGGED, ...
  bool report = true;       // a completion is written; errors of an operation without one are told all the same
  bool discards = false;    // takes a message for nobody: nothing is written or counted, not even that it is too long
};

struct Outgoing {
  Operation operation{};
  Header header{};                // kind and slot are the connection's to say
  std::vector<std::byte> copy{};  // of an injected message; otherwise the bytes are at operation.buffer
};

struct Completion {
  Operation operation{};
  std::size_t bytes = 0;
  std::uint64_t tag = 0;
  std::uint64_t data = 0;
  bool has_data = false;
  Source source = kAnySource;
  int error = 0;             // FI_E...
  std::size_t overflow = 0;  // bytes that a truncated message was too long
};

class Completions {
 public:
  virtual ~Completions() = default;
  virtual void complete(const Completion& completion) = 0;
};

// A number for each address, the same for all that a domain made.
class AddressBook {
 public:
  Source source_of(const transport::net::Address& address) {
    const auto [found, added] = sources_.try_emplace(address.to_string(), static_cast<Source>(addresses_.size()));
    if (added) addresses_.push_back(address);
    return found->second;
  }
  const transport::net::Address& address(Source source) const { return addresses_[source]; }
  std::size_t size() const { return addresses_.size(); }

 private:
  std::map<std::string, Source> sources_;
  std::vector<transport::net::Address> addresses_;
};

// What all connections of an endpoint share. Everything runs with the domain's lock held.
struct Setup {
  transport::Transport& transport;
  const Clock& clock;
  const Log& log;
  ProviderSettings settings;
  transport::net::Address self;  // by which peers know the endpoint
  Completions& completions;
};

int fi_error(ErrorCode code);

}  // namespace clustar::libfabric_shim::provider
