#include "transport/io/dpdk/settings.h"

namespace clustar {

const TypedTable<DpdkSettings>& DpdkSettings::table() {
  using S = DpdkSettings;
  static const TypedTable<S> all({
      setting::make_text("dpdk_devices", &S::devices, "DEVICE[@ADDRESS/PREFIX[>GATEWAY]], several separated by ';'")
          .otherwise("none")
          .help("with `CLUSTAR_IO=dpdk`: DPDK's devices and their IPv4 addresses: a place on the PCI bus "
                "(`0000:65:00.0@10.0.0.1/24>10.0.0.254`), or a virtual device with its arguments "
                "(`net_af_packet0,iface=eth1`); without an address it has that of the interface `iface`"),
      setting::make_choice("dpdk_huge_pages", &S::huge_pages, {"auto", "yes", "no"})
          .help("DPDK's memory is of huge pages: `auto` where enough are free; most NICs need them, virtual devices "
                "do not"),
      setting::make_number("dpdk_memory_mb", &S::memory_mb, 64u, 65536u, " (MiB)")
          .help("memory of DPDK in a process, for packet buffers above all: the first device that is opened decides"),
      setting::make_number("dpdk_mtu", &S::mtu, 0u, 9216u, " (0: the port's)")
          .help("largest IP packet, at least 576; a NIC is set to it"),
      setting::make_number("dpdk_descriptors", &S::descriptors, 64u, 8192u)
          .help("of each receive ring and of each transmit ring of a port; a NIC may take fewer"),
      setting::make_number("dpdk_queues", &S::queues, 1u, 16u)
          .help("receive queues, and as many transmit queues, of a port: of a NIC, which spreads packets over them by "
                "RSS, of `net_af_packet` (`qpairs`) and of `net_af_xdp` (`queue_count`); each has rings of its own"),
      setting::make_number("dpdk_held", &S::held, 64u, 65536u)
          .help("packet buffers of a port besides those in its rings: received packets that `mlt` has not read yet"),
  });
  return all;
}

}  // namespace clustar
