#include "transport/net/settings.h"

#include "transport/base/nccl_values.h"

namespace clustar {

const TypedTable<NetworkSettings>& NetworkSettings::table() {
  using S = NetworkSettings;
  constexpr const char* kSyntax = "NCCL's syntax: prefix,prefix | =name,name | ^prefix";
  static const TypedTable<S> all(
      {
          setting::make_text("socket_ifname", &S::interfaces, kSyntax)
              .otherwise("`NCCL_SOCKET_IFNAME`, otherwise all but loopback and docker")
              .help("NCCL's syntax: `eth,ib` prefixes, `=eth0` exact, `^docker` exclude, `^=eth0`"),
          setting::make_text("control_ifname", &S::control_interfaces, kSyntax)
              .otherwise("as `CLUSTAR_SOCKET_IFNAME`")
              .help("`mlt` only, on all ranks or on none: interfaces of control connections (the first that fits), "
                    "if these have a network of their own; in the same syntax. Each end then names the host that its "
                    "packets go to, so a process that was given a job's handle may name any "
                    "([security.md](security.md))"),
          setting::make_choice("socket_family", &S::family_name, {"any", "ipv4", "ipv6"})
              .otherwise("`NCCL_SOCKET_FAMILY`, otherwise `any`")
              .help("`any`, `ipv4`, `ipv6`"),
          setting::make_number("line_mbps", &S::line_mbps, 0, 10'000'000, " (Mbit/s; 0: what the driver says)")
              .help("what the line of each interface carries, where the driver does not know: virtual interfaces, "
                    "rates that a switch or a cloud shapes. NCCL is told it, too; the order of sending needs it to "
                    "keep the queue in front of the line short"),
      },
      {.nccl = {{"NCCL_SOCKET_IFNAME", "socket_ifname", "interfaces", nccl_values::as_it_is},
                {"NCCL_SOCKET_FAMILY", "socket_family", "AF_INET | AF_INET6",
                 nccl_values::one_of_words({{"AF_INET", "ipv4"}, {"AF_INET6", "ipv6"}})}}});
  return all;
}

}  // namespace clustar
