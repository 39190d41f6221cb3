// All settings, in one place: default < TOML file (CLUSTAR_CONFIG) < environment CLUSTAR_* < API.
// config.cc is the only file that reads the environment.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/base/time.h"

namespace clustar {

// What all ranks need alike, boiled down: one number per setting of Config::shared_keys(), 0 beyond them.
using SharedDigests = std::array<std::uint32_t, 8>;

struct Config {
  // tcp | mlt | verbs | ofi, or auto: the best that works here. A named one that does not work is an error.
  std::string transport = "auto";
  // Transports of which one must be in use, else communicators fail to form; empty = none required.
  std::vector<std::string> require;
  // NCCL's interface syntax; taken from NCCL_SOCKET_IFNAME when CLUSTAR_SOCKET_IFNAME is not set.
  std::string socket_ifname;
  // Interfaces of mlt's control connections, in the same syntax, where these run over another network than its packets;
  // peers may then name the hosts that packets go to. Empty = the same network, and no peer names another host.
  std::string control_ifname;
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
  // What carries mlt's packets: udp (the kernel's sockets), verbs_ud or verbs_uc (queue pairs of RDMA NICs).
  std::string io = "udp";
  // RDMA NICs, for the transport verbs and for mlt over verbs. NCCL's variables count where ours are not set:
  // docs/verbs.md has the table and the differences.
  bool ib_disable = false;  // no RDMA NIC is used, whatever there is
  // Devices and ports, in the syntax of NCCL_IB_HCA; empty = all.
  std::string ib_hca;
  int ib_gid_index = -1;               // -1 = chosen, 0 .. 255
  std::string ib_addr_family = "any";  // of the chosen GID: any (IPv4 first) | ipv4 | ipv6
  int ib_pkey_index = 0;               // 0 .. 65535, in the port's table
  int ib_traffic_class = -1;           // the IP header's byte (DSCP << 2), 0 .. 255; -1 = what the communicator says
  int ib_service_level = -1;           // 0 .. 15; -1 = what the communicator says
  int ib_timeout = 20;                 // a packet counts as lost after 4.096 us * 2^timeout, 1 .. 22
  int ib_retry_count = 6;              // repetitions until a silent peer is an error, 0 .. 7; rdma_rxe takes 7 for ever
  int ib_queue_pairs = 2;              // per connection and port, 1 .. 8; one takes over when another fails
  std::uint32_t ib_mtu = 0;            // bytes of payload in a packet; 0 = what the port has active
  // Largest message that may go ahead of its receive, and the least that is worth a queue pair of its own.
  std::uint32_t ib_eager_bytes = 8 * 1024;
  std::uint32_t ib_stripe_bytes = 64 * 1024;
  std::string ib_relaxed_ordering = "auto";  // of PCI writes: auto (where it can be) | on | off
  // auto: on InfiniBand; where on, messages above the threshold are announced apart, since packets may be reordered.
  std::string ib_adaptive_routing = "auto";
  std::uint32_t ib_ar_threshold = 8 * 1024;
  bool ib_force_flush = false;  // ask NCCL to flush after every receive into GPU memory, whatever the GPU
  bool ib_merge_nics = true;    // NCCL may fuse ports of one NIC into one device
  // GPU memory: auto (offered to NCCL where the NIC reaches it) | off (never) | staged (where the NIC does not, it is
  // copied by way of pinned host memory of ours: for comparisons with NCCL's own host buffers).
  std::string gdr = "auto";
  // For tests without a GPU: host memory plays GPU memory. Every transport offers it, NCCL is asked to flush, and
  // nothing may touch it but what could touch a GPU's.
  bool gdr_emulate = false;
  // Who goes first at a NIC: fifo (by arrival) | class (by the communicators' trafficClass, the larger first,
  // strictly).
  std::string send_order = "fifo";
  // Under an order other than fifo: what the line carries in so many microseconds, and 16 KiB, may be handed to the
  // kernel or the NIC, where nothing overtakes it any more, 0 .. 100000; 0 = no bound.
  int send_ahead_us = 20;
  // Number of the training job that this process belongs to, for orders that tell jobs apart, 0 .. 2147483647.
  int job = 0;
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
  // For comparisons: a message of mlt ends so long after its first packet, whatever is missing, which breaks the loss
  // contract for every message; 0 = never. Other transports refuse to work with it.
  Duration static_deadline{0};
  // What mlt may lose of gradients (the plugin's policy reads these; docs/loss.md). No class and no rule: nothing.
  // p of collectives that opted in, unless their rule has its own: parts per million, 0 .. 100,000.
  std::uint32_t loss_tolerance_ppm = 10'000;
  // Communicators whose trafficClass is in one of these ranges opt in: "160-167,200"; empty = none.
  std::string loss_traffic_classes;
  // Rules that opt in, joined by ';': "comm=dp*,ranks=4-64,bytes=1M-,func=allreduce,p=0.01"; empty = none.
  std::string loss_rules;
  // All-reduces and reduce-scatters of each communicator, and sends to each rank, that stay reliable at first.
  std::uint32_t loss_warmup = 100;
  // The most that any rule allows while the model is in a critical phase, parts per million, 0 .. 100,000; unset:
  // loss_tolerance_ppm.
  std::optional<std::uint32_t> loss_critical_tolerance_ppm;
  // Relative fall of the reported gradient norm that makes the phase critical, above 0 and up to 1.
  double loss_critical_drop = 0.5;
  // Lose also where NCCL gives no second opinion on a message (net API below v11).
  bool loss_trust_profiler = false;
  // on: the tuner steers collectives that opted in to RING and SIMPLE; off: it only forbids what the transport cannot
  // do.
  std::string tuner = "on";
  // Profiler library that gets all of NCCL's events, too; empty = none.
  std::string chain_profiler;

  // key -> where its value comes from: "default", "CLUSTAR_CONFIG (path)", "environment", "NCCL_SOCKET_IFNAME".
  std::map<std::string, std::string> sources;
  // A sentence for each variable of NCCL's that is set to what cannot be taken, and so does not count.
  std::vector<std::string> not_taken;
  // Names of NCCL_IB_ variables that are set and never read here.
  std::vector<std::string> unread;

  // Defaults, then CLUSTAR_CONFIG's file, then the environment. Error: an unknown key or a bad value, with what is
  // allowed. Names that begin with CLUSTAR_TEST_ are left to the tests.
  static Result<Config> load();
  // The same from given variables, for tests.
  static Result<Config> load_from(const std::map<std::string, std::string>& environment);

  // Name of the variable that set ib_disable, for a person.
  std::string disabled_by() const;
  // No other transport may be chosen.
  bool only_mlt() const;
  // What load() checks of several settings together; for a Config that was made otherwise.
  Result<void> check() const;

  // Settings that change what all ranks must agree on: CLUSTAR_ names, in the order of shared_digests().
  static std::span<const char* const> shared_keys();
  // Equal for equal values, whatever their source.
  SharedDigests shared_digests() const;

  // One "key = value (source)" per setting, and what is unread.
  std::vector<std::string> describe() const;
};

}  // namespace clustar
