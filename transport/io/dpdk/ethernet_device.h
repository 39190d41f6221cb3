// One port of DPDK: a NIC, or a virtual device. Its receive queues are read one after the other, and frames of one flow
// leave by one transmit queue, so that they stay in order.
//
// Thread rule: open() any thread; all else one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/base/result.h"
#include "transport/io/dpdk/buffers.h"
#include "transport/io/dpdk/core/device_spec.h"
#include "transport/io/dpdk/core/ethernet.h"
#include "transport/io/dpdk/steering/steering_program.h"
#include "transport/io/dpdk/steering/xdp_interface.h"

namespace clustar::transport::io::dpdk {

struct PortOptions {
  std::size_t mtu = 0;  // 0: the port's
  std::uint32_t descriptors = 1024;
  std::uint32_t held = 2048;   // buffers besides those in the rings
  std::uint32_t queues = 1;    // each way; a device that has fewer, or cannot spread packets over them, takes fewer
  bool beside_kernel = false;  // it has the port's address, too, and goes on using the interface
};

class EthernetDevice {
 public:
  // EAL has begun. Errors: no such device, another process or the kernel has it, it takes no such MTU, no memory.
  static Result<std::unique_ptr<EthernetDevice>> open(const DeviceSpec& spec, const PortOptions& options);
  ~EthernetDevice();
  EthernetDevice(const EthernetDevice&) = delete;
  EthernetDevice& operator=(const EthernetDevice&) = delete;

  const Mac& mac() const { return mac_; }
  std::size_t mtu() const { return mtu_; }
  std::uint64_t line_rate_bps() const { return line_rate_bps_; }  // 0: unknown, or made up by a virtual device
  // Made of software; what comes from it may have a checksum that was left to a NIC.
  bool is_virtual() const { return !spec_.pci; }
  // A frame's payload may lie in memory that DPDK does not know, and has been read when flush() has sent the frame.
  bool gathers() const { return gathers_; }
  // The kernel hands it datagrams for ports that sockets with STEER_MARK hold, and keeps all else (steering/).
  bool is_steered() const { return steering_.has_value(); }
  // Sockets of the driver's, one of which is readable when a frame has come; none: nothing tells of frames.
  std::span<const int> ready_fds() const { return sockets_; }
  std::size_t queues() const { return outgoing_.size(); }
  int numa_node() const { return numa_node_; }
  std::string describe() const;  // "net_af_packet0 (net_af_packet), MTU 1500"

  // Of `bytes`, not filled in; null: all are in use.
  Buffer take(std::size_t bytes);
  // A UDP datagram without checksum becomes one that the device sends with it.
  void seal(rte_mbuf& frame) const;
  // Into a queue of ours, which flush() empties into the device's. Frames with the same `flow` keep their order.
  void send(Buffer frame, std::size_t flow = 0) { outgoing_[flow % queues()].push_back(frame.release()); }
  // False: the device has no room, and the rest waits.
  bool flush();
  void drop_waiting();  // they are lost
  std::size_t waiting_bytes() const;
  // The caller owns them.
  std::size_t receive(std::span<rte_mbuf*> frames);

 private:
  explicit EthernetDevice(DeviceSpec spec) : spec_(std::move(spec)) {}
  Result<void> start(const PortOptions& options);
  Result<void> configure(const PortOptions& options);
  Result<void> set_mtu(std::size_t wanted, std::uint32_t longest_frame);
  Result<void> set_up_queues(const PortOptions& options);
  Result<void> set_up_receive(std::uint16_t descriptors, std::uint32_t buffers);
  Result<void> prepare_xdp(const PortOptions& options);
  void find_sockets(std::span<const int> before);
  void empty_ring();
  Result<void> failed(const char* what, int code) const;

  const DeviceSpec spec_;
  XdpInterface xdp_{};  // as long as the port may have a program there
  std::optional<SteeringProgram> steering_{};
  std::vector<int> sockets_{};  // the driver's
  Pool pool_;
  std::uint16_t port_ = 0;
  bool there_ = false;
  Mac mac_{};
  std::size_t mtu_ = 0;
  std::uint64_t line_rate_bps_ = 0;
  int numa_node_ = 0;
  bool fills_checksums_ = false;
  bool gathers_ = false;
  std::string driver_;
  std::vector<std::vector<rte_mbuf*>> outgoing_;  // by queue; the front was offered to the device
  std::size_t next_ = 0;                          // of the receive queues: the first to be read
};

// Of a NIC that EAL knows, Mbit/s, as it could be; 0: unknown.
int speed_of(const DeviceSpec& spec);

}  // namespace clustar::transport::io::dpdk
