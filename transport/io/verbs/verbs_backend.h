// CLUSTAR_IO=verbs_ud and verbs_uc: the host's interfaces that are RDMA ports, too, as devices. A RoCE v2 port takes
// the addresses of its interface as GIDs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/base/log.h"
#include "transport/io/packet_backend.h"
#include "transport/io/verbs/device_memory.h"
#include "transport/io/verbs/ud_io.h"
#include "transport/io/verbs/ud_wire.h"
#include "transport/net/interfaces.h"

namespace clustar::transport::io::verbs {

// Where an address of this host is an RDMA port's, too.
struct RdmaPort {
  std::string device{};
  std::uint8_t port = 1;
  int gid_index = 0;
  bool software = false;  // no PCI device is behind it
};
// Error kUnavailable: no active RoCE v2 port that CLUSTAR_IB_HCA lets pass has it; names those it lets pass.
Result<RdmaPort> rdma_port_of(const Config& config, const net::Interface& interface);

class VerbsBackend final : public PacketBackend {
 public:
  // kUc: payload is placed by writes over UC, and UD carries everything else.
  enum class Kind : std::uint8_t { kUd, kUc };
  // Error kUnavailable: none of the interfaces that CLUSTAR_SOCKET_IFNAME chooses is an RDMA port.
  static Result<std::unique_ptr<PacketBackend>> create(Kind kind, const Config& config, const Log& log);

  const char* name() const override { return kind_ == Kind::kUd ? "verbs_ud" : "verbs_uc"; }
  // Opens what reaches GPU memory, for a moment: NCCL registers what it is told here.
  Result<std::vector<DeviceInfo>> devices() override;
  Result<std::unique_ptr<PacketIo>> open(std::size_t device) override;

 private:
  struct Place {
    net::Interface interface;
    RdmaPort port{};
    DeviceMemory memory{};
  };

  VerbsBackend(Kind kind, Config config, Log log) : kind_(kind), config_(std::move(config)), log_(std::move(log)) {}
  FixedMarks marks() const;
  UdOptions options_of(const Place& place) const;

  const Kind kind_;
  const Config config_;
  const Log log_;
  std::vector<Place> places_;
  std::vector<DeviceInfo> devices_;  // once they were asked for
};

}  // namespace clustar::transport::io::verbs
