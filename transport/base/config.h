// All settings, in one place: default < TOML file (CLUSTAR_CONFIG) < environment CLUSTAR_* < API.
// config.cc is the only file that reads the environment.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar {

struct Config {
  // tcp | mlt | verbs | ofi, or auto: the best that works here. A named one that does not work is an error.
  std::string transport = "auto";
  // Transports of which one must be in use, else communicators fail to form; empty = none required.
  std::vector<std::string> require;
  // NCCL's interface syntax; taken from NCCL_SOCKET_IFNAME when CLUSTAR_SOCKET_IFNAME is not set.
  std::string socket_ifname;
  // any | ipv4 | ipv6; taken from NCCL_SOCKET_FAMILY (AF_INET, AF_INET6) when unset.
  std::string socket_family = "any";
  // Data sockets per connection, 1 .. 16.
  int tcp_sockets = 1;
  // Largest message that may go ahead of its receive.
  std::uint32_t tcp_eager_bytes = 64 * 1024;
  // Bytes per connection that may be ahead of their receives.
  std::uint32_t tcp_window_bytes = 1024 * 1024;
  // A message longer than this is cut into chunks that spread over the data sockets; at least tcp_eager_bytes counts.
  std::uint32_t tcp_chunk_bytes = 512 * 1024;
  // Bytes that the kernel may hold unsent per socket; what is above stays in the send queue, where it can be ordered.
  std::uint32_t tcp_notsent_bytes = 1024 * 1024;
  // TCP_CONGESTION of every socket; empty = the kernel's default.
  std::string tcp_congestion;
  // Who moves mlt's bytes: inline (callers only), thread, or auto: callers, and a thread when they are silent.
  std::string engine = "auto";
  // File with the secret that all ranks share; with it only transports that protect every packet may be used. Empty: no
  // protection.
  std::string psk_file;
  // authenticate: header and payload, which travels in clear; encrypt: the payload, too.
  std::string psk_mode = "authenticate";
  // A silent live peer fails the connection after this time; 0 = never, it is only named in a warning.
  Duration stall_timeout{0};
  // For experiments: faults that mlt injects into what it sends, as FaultSpec's text; empty = none. Other transports
  // refuse to work with it.
  std::string inject_faults;

  // key -> where its value comes from: "default", "CLUSTAR_CONFIG (path)", "environment", "NCCL_SOCKET_IFNAME".
  std::map<std::string, std::string> sources;

  // Defaults, then CLUSTAR_CONFIG's file, then the environment. Error: an unknown key or a bad value, with what is
  // allowed. Names that begin with CLUSTAR_TEST_ are left to the tests.
  static Result<Config> load();
  // The same from given variables, for tests.
  static Result<Config> load_from(const std::map<std::string, std::string>& environment);

  // No other transport may be chosen.
  bool only_mlt() const;
  // What load() checks of several settings together; for a Config that was made otherwise.
  Result<void> check() const;

  // One "key = value (source)" per setting.
  std::vector<std::string> describe() const;
};

}  // namespace clustar
