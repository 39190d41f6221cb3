// The connecting side up to the listener's answer: opens connections to the endpoint whose turn it is, says a hello on
// each, reads the answer on the first, and tries again when the peer fails.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/api/shared_config.h"
#include "transport/api/transport.h"
#include "transport/base/result.h"
#include "transport/base/time.h"
#include "transport/handshake/core/invitation.h"
#include "transport/handshake/core/retry_plan.h"
#include "transport/net/socket.h"

namespace clustar::transport::handshake {

// The connecting side.
struct Caller {
  std::string transport;                // begins every message: "tcp"
  std::string interface;                // by the name that users know
  std::vector<net::Address> addresses;  // connections come from the first of the endpoint's family
  net::SocketOptions options{};
  // What else it may mean that a listener closes the connection; the words after "its process ended, or ".
  std::string refusal = "it refused the token";
  std::string purpose{};  // of the connection, behind a listener's address: ", where ..."

  // Both configurations must be alike; `remote` is the listener.
  Result<void> compare(const SharedConfig& here, const SharedConfig& there, const net::Address& remote) const;
  // Those of a family that an own address has; an error when there are none.
  Result<std::vector<net::Endpoint>> reachable(const std::vector<net::Endpoint>& endpoints) const;
  // For a handle that does not parse.
  Error not_a_handle() const;
};

// Once it has failed for good, every call reports that failure again, and nobody is dialed any more.
class Dial {
 public:
  // To who gave the invitation, at those of its endpoints that the caller reaches. Error: none, or the
  // configurations differ (names the setting).
  static Result<Dial> to(const Clock& clock, Caller caller, const Invitation& invitation, const SharedConfig& here);
  // `endpoints`: those that the caller reaches; not empty.
  Dial(const Clock& clock, Caller caller, std::vector<net::Endpoint> endpoints);

  // True when it is time to try, once per try: call open() for each connection then.
  bool begin_try();
  // The first one is the control connection.
  Result<void> open(std::span<const std::byte> hello);
  // True once all hellos are said and `into` is filled with what the first connection answered; again for what it says
  // next. False without connections, too.
  Result<bool> hear(std::span<std::byte> into);
  // Ends the try. Null when there will be another; otherwise the error that is final.
  Result<std::unique_ptr<SendChannel>> failed(const Error& error);

  const Caller& caller() const { return caller_; }
  net::Address remote() const { return net::Address(endpoints_[plan_.endpoint()]); }
  const net::Socket& control() const { return lines_.front().socket; }
  // Of all connections, in the order of open(). It is over then: no other try, nothing to hear.
  std::vector<net::Socket> take_sockets();
  Error another_protocol() const;

 private:
  struct Line {
    net::Socket socket;
    std::vector<std::byte> hello;
    std::size_t said = 0;
    bool connected = false;
  };

  Result<bool> connected();
  Result<bool> greeted();

  const Clock& clock_;
  Caller caller_;
  std::vector<net::Endpoint> endpoints_;
  RetryPlan plan_;
  bool trying_ = false;
  std::vector<Line> lines_;
  std::size_t have_ = 0;  // of the answer
  std::optional<Error> final_{};
};

}  // namespace clustar::transport::handshake
