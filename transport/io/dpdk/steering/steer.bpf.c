/* Which packets of an interface net_af_xdp takes, where the kernel goes on using the interface: datagrams for UDP ports
 * that our ends have, and answers to our questions for a MAC. All else is the kernel's, as without us.
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

/* RFC 826, of IPv4 on Ethernet. */
struct arp {
  __be16 hardware, protocol;
  __u8 hardware_bytes, protocol_bytes;
  __be16 operation;
  __u8 sender[6], sender_ip[4], target[6], target_ip[4];
};
#define ARP_REPLY 2

/* Our questions have no sender's address (a probe, RFC 5227), so answers to them do not have one as their target's. The
 * kernel's own have, and go to the kernel. */
static __attribute__((always_inline)) inline int is_answer_to_us(const struct arp* arp, const void* end) {
  if ((const void*)(arp + 1) > end) return 0;
  return arp->operation == bpf_htons(ARP_REPLY) &&
         (arp->target_ip[0] | arp->target_ip[1] | arp->target_ip[2] | arp->target_ip[3]) == 0;
}

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
int steer(struct xdp_md* packet) {
  void* const end = (void*)(long)packet->data_end;
  const struct ethhdr* const ethernet = (void*)(long)packet->data;
  if ((const void*)(ethernet + 1) > end) return XDP_PASS;
  int ours = 0;
  if (ethernet->h_proto == bpf_htons(ETH_P_ARP)) {
    ours = is_answer_to_us((const struct arp*)(ethernet + 1), end);
  } else if (ethernet->h_proto == bpf_htons(ETH_P_IP)) {
    ours = is_for_our_ends(packet, (const struct iphdr*)(ethernet + 1), end);
  }
  /* A queue that nobody reads is the kernel's as well. */
  return ours ? (int)bpf_redirect_map(&xsks_map, packet->rx_queue_index, XDP_PASS) : XDP_PASS;
}

char licence[] SEC("license") = "Dual BSD/GPL";
