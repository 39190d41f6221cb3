/* Which packets of an interface net_af_xdp takes, where the kernel goes on using the interface: datagrams for UDP ports
 * that our ends have. All else is the kernel's, as without us; of ARP the host reads a copy.
 *
 * Runs for each packet that arrives, before the kernel makes anything of it (XDP). DPDK loads it, and finds the sockets'
 * map by its name (net_af_xdp's argument xdp_prog). */
/* libbpf's headers need the kernel's types before them. */
/* clang-format off */
#include "steer.h"

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>
/* clang-format on */

struct {
  __uint(type, BPF_MAP_TYPE_XSKMAP);
  __uint(max_entries, 64);
  __type(key, __u32); /* receive queue */
  __type(value, __u32);
} xsks_map SEC(".maps");

static __attribute__((always_inline)) inline int is_for_our_ends(struct xdp_md* packet, const struct iphdr* ip,
                                                                 const void* end) {
  if ((const void*)(ip + 1) > end || ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP) return 0;
  if ((ip->frag_off & bpf_htons(0x3fff)) != 0) return 0; /* a fragment may have no ports */
  const struct udphdr* udp = (const struct udphdr*)(ip + 1);
  if ((const void*)(udp + 1) > end) return 0;
  struct bpf_sock_tuple route = {};
  route.ipv4.saddr = ip->saddr;
  route.ipv4.daddr = ip->daddr;
  route.ipv4.sport = udp->source;
  route.ipv4.dport = udp->dest;
  struct bpf_sock* const holder = bpf_sk_lookup_udp(packet, &route, sizeof route.ipv4, BPF_F_CURRENT_NETNS, 0);
  if (!holder) return 0;
  const __u32 mark = holder->mark;
  bpf_sk_release(holder);
  return mark == STEER_MARK;
}

SEC("xdp")
int clustar_steer(struct xdp_md* packet) {
  void* const end = (void*)(long)packet->data_end;
  const struct ethhdr* const ethernet = (void*)(long)packet->data;
  if ((const void*)(ethernet + 1) > end || ethernet->h_proto != bpf_htons(ETH_P_IP)) return XDP_PASS;
  if (!is_for_our_ends(packet, (const struct iphdr*)(ethernet + 1), end)) return XDP_PASS;
  return (int)bpf_redirect_map(&xsks_map, packet->rx_queue_index, XDP_PASS);
}

char licence[] SEC("license") = "Dual BSD/GPL";
