/* What a switch port does to each packet. Two programs share the maps: "to_host" sits at clsact egress of the port, in
 * front of its HTB; "from_host" at its clsact ingress.
 *
 * clsact runs before the queueing discipline, so HTB's own queue is out of sight. The depth that rules go by is that of
 * a virtual queue, fed with every admitted packet and drained at the port's rate from class 7 down: what HTB does, kept
 * as numbers, and exact where a scheduler on a busy CPU is late. HTB behind it only spaces the packets. */
/* libbpf's headers need the kernel's types before them. */
/* clang-format off */
#include "port_map.h"

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>
#include <stddef.h>
/* clang-format on */

#define INLINE static __attribute__((always_inline)) inline

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  /* Not preallocated: an update makes a new element, and does not write over what packets are reading. */
  __uint(map_flags, BPF_F_NO_PREALLOC);
  __type(key, __u32);
  __type(value, struct switch_rules);
} port_rules SEC(".maps");

struct {
  __uint(type, BPF_MAP_TYPE_HASH);
  __uint(max_entries, 1);
  __type(key, __u32);
  __type(value, struct switch_state);
} port_states SEC(".maps");

enum verdict { PASS, DROP, MARK, TRIM };

struct packet {
  __u32 class_, bytes, ecn, trimmable, super_packet;
};

/* Knuth's MMIX generator; its low bits are poor, so callers get the high half. */
INLINE __u64 next_random(__u64* random) {
  *random = *random * 6364136223846793005ULL + 1442695040888963407ULL;
  return *random >> 32;
}

/* splitmix64's finalizer: neighbouring seeds must not start neighbouring sequences. */
INLINE __u64 mixed(__u64 x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

INLINE void raise_to(__u64* maximum, __u64 value) {
  if (value > *maximum) *maximum = value;
}

/* Evenly from 0 to `most`, the same for the same seed and number. */
INLINE __u64 drawn(__u64 seed, __u64 number, __u64 most) {
  return most ? mixed(seed + number * 0x9e3779b97f4a7c15ULL) % (most + 1) : 0;
}

INLINE void adopt(const struct switch_rules* rules, struct switch_state* state, __u64 now) {
  int i;
  if (state->epoch != rules->epoch) {
    const __u64 seed = mixed(rules->seed + 0x9e3779b97f4a7c15ULL) ^ rules->salt;
    state->epoch = rules->epoch;
    for (i = 0; i < SWITCH_DIRECTIONS; ++i) {
      state->loss[i].random = mixed(seed + i);
      state->loss[i].origin_ns = now;
      state->loss[i].burst_seed = mixed(seed + SWITCH_DIRECTIONS + 1 + i);
      state->loss[i].bad = 0;
    }
    state->mark_random = mixed(seed + SWITCH_DIRECTIONS);
  }
  if (state->counter_epoch != rules->counter_epoch) {
    /* volatile, or clang makes it a call of memset, which there is none of. */
    volatile __u64* words = (volatile __u64*)&state->counters;
    state->counter_epoch = rules->counter_epoch;
    for (i = 0; i < (int)(sizeof(state->counters) / sizeof(__u64)); ++i) words[i] = 0;
  }
}

/* The chance to be lost to a burst at `now`, in parts of 2^32. A burst is drawn from the number of its period, not from
 * the packets that came before: when bursts come does not depend on what is sent. */
INLINE __u64 burst_loss(const struct switch_loss_rules* rules, const struct switch_loss_state* state, __u64 now) {
  __u64 number, at, length = rules->burst_length_ns, loss = rules->burst_loss;
  if (rules->burst_every_ns == 0 || now < state->origin_ns) return 0;
  number = (now - state->origin_ns) / rules->burst_every_ns * 3;
  at = (now - state->origin_ns) % rules->burst_every_ns;
  if (rules->burst_jitter_ns) {
    const __u64 begin = drawn(state->burst_seed, number, rules->burst_jitter_ns);
    if (at < begin) return 0;
    at -= begin;
  }
  if (rules->burst_longest_ns) length += drawn(state->burst_seed, number + 1, rules->burst_longest_ns - length);
  if (at >= length) return 0;
  if (rules->burst_highest_loss) loss += drawn(state->burst_seed, number + 2, rules->burst_highest_loss - loss);
  return loss;
}

INLINE int is_lost(const struct switch_loss_rules* rules, struct switch_loss_state* state, __u64 now) {
  int lost = 0;
  if (rules->dead) return 1;
  if (rules->random && next_random(&state->random) < rules->random) lost = 1;
  if (rules->gilbert_elliott) {
    const __u64 change = next_random(&state->random);
    if (state->bad) {
      if (change < rules->to_good) state->bad = 0;
    } else if (change < rules->to_bad) {
      state->bad = 1;
    }
    if (next_random(&state->random) < (state->bad ? rules->loss_bad : rules->loss_good)) lost = 1;
  }
  const __u64 burst = burst_loss(rules, state, now);
  if (burst && next_random(&state->random) < burst) lost = 1;
  return lost;
}

/* RED on the depth of the moment, not on an average: DCTCP's and DCQCN's way. */
INLINE int is_marked(const struct switch_class_rules* rules, __u64* random, __u64 depth) {
  if (rules->mark_probability == 0 || depth <= rules->mark_min) return 0;
  if (depth > rules->mark_max) return 1;
  return next_random(random) <
         rules->mark_probability * (depth - rules->mark_min) / (rules->mark_max - rules->mark_min);
}

INLINE void enqueue(struct switch_state* state, __u32 class_, __u64 bytes, __u64 rate) {
  struct switch_class_counters* counters = &state->counters.classes[class_ & SWITCH_TOP_CLASS];
  counters->packets += 1;
  counters->bytes += bytes;
  if (rate == 0) return;
  state->depth[class_ & SWITCH_TOP_CLASS] += bytes;
  state->total += bytes;
  raise_to(&counters->deepest, state->depth[class_ & SWITCH_TOP_CLASS]);
  raise_to(&state->counters.deepest, state->total);
}

/* Under the lock: no helper may be called here. */
INLINE enum verdict admit(const struct switch_rules* rules, struct switch_state* state, const struct packet* packet,
                          __u64 now) {
  const __u32 class_ = packet->class_ & SWITCH_TOP_CLASS;
  const struct switch_class_rules* own = &rules->classes[class_];
  struct switch_class_counters* counters = &state->counters.classes[class_];
  adopt(rules, state, now);
  switch_drain(state, rules->rate, now);
  raise_to(&counters->largest, packet->bytes);
  counters->super_packets += packet->super_packet;
  if (is_lost(&rules->loss[SWITCH_TO_HOST], &state->loss[SWITCH_TO_HOST], now)) {
    counters->dropped_loss += 1;
    return DROP;
  }
  if (rules->rate != 0) {
    if (state->total > own->drop_above) {
      counters->dropped_selective += 1;
      return DROP;
    }
    if (state->total + packet->bytes > rules->buffer) {
      /* Headers get a quarter of the buffer on top: they are what remains when it is full. */
      if (own->trim && packet->trimmable && state->total + SWITCH_TRIM_BYTES <= rules->buffer + rules->buffer / 4) {
        counters->trimmed += 1;
        enqueue(state, SWITCH_TOP_CLASS, SWITCH_TRIM_BYTES, rules->rate);
        return TRIM;
      }
      counters->dropped_buffer += 1;
      return DROP;
    }
  }
  enqueue(state, class_, packet->bytes, rules->rate);
  /* ECT(1) = 1, ECT(0) = 2 (RFC 3168, section 5); what is CE already is not marked again. */
  if ((packet->ecn == 1 || packet->ecn == 2) && is_marked(own, &state->mark_random, state->depth[class_])) {
    counters->marked += 1;
    return MARK;
  }
  return PASS;
}

/* A datagram that was let in trimmed and then could not be cut (its sender left a checksum to be computed beyond the
 * cut): dropped for want of room after all. Checked for 0, since counters may have been reset in between. */
INLINE void take_back(struct switch_state* state, __u32 class_, __u64 rate) {
  struct switch_class_counters* own = &state->counters.classes[class_ & SWITCH_TOP_CLASS];
  struct switch_class_counters* top = &state->counters.classes[SWITCH_TOP_CLASS];
  own->dropped_buffer += 1;
  if (own->trimmed && top->packets && top->bytes >= SWITCH_TRIM_BYTES) {
    own->trimmed -= 1;
    top->packets -= 1;
    top->bytes -= SWITCH_TRIM_BYTES;
  }
  if (rate && state->depth[SWITCH_TOP_CLASS] >= SWITCH_TRIM_BYTES) {
    state->depth[SWITCH_TOP_CLASS] -= SWITCH_TRIM_BYTES;
    state->total -= SWITCH_TRIM_BYTES;
  }
}

/* Traffic class of IPv4 and IPv6 alike is the top three bits of DSCP. Whatever else there is (ARP) is what a network
 * cannot do without, and goes first. A VLAN tag is no matter: the kernel has taken it out of the frame by now. */
INLINE void look_at(struct __sk_buff* skb, struct packet* packet) {
  struct iphdr ip;
  __u8 start[2];
  packet->class_ = SWITCH_TOP_CLASS;
  packet->bytes = skb->len;
  packet->ecn = 0;
  packet->trimmable = 0;
  packet->super_packet = skb->gso_segs > 1;
  if (skb->protocol == bpf_htons(ETH_P_IPV6) && bpf_skb_load_bytes(skb, SWITCH_ETHERNET, start, sizeof(start)) == 0) {
    const __u32 traffic_class = (start[0] & 0x0f) << 4 | start[1] >> 4; /* RFC 8200, section 3 */
    packet->class_ = traffic_class >> 5;
    packet->ecn = traffic_class & 3;
  }
  if (skb->protocol == bpf_htons(ETH_P_IP) && bpf_skb_load_bytes(skb, SWITCH_ETHERNET, &ip, sizeof(ip)) == 0) {
    packet->class_ = ip.tos >> 5;
    packet->ecn = ip.tos & 3;
    /* Whole UDP datagrams only: TCP could not use a header alone, and over IPv6 a checksum of 0 is not allowed. */
    packet->trimmable = ip.protocol == IPPROTO_UDP && ip.ihl == 5 && (ip.frag_off & bpf_htons(0x3fff)) == 0 &&
                        skb->len > SWITCH_TRIM_BYTES && !packet->super_packet;
  }
}

/* Cuts the datagram, with valid lengths and checksums, and raises its DSCP to class 7 for the switches that follow. */
INLINE int trim(struct __sk_buff* skb) {
  const __u32 ip_at = SWITCH_ETHERNET, udp_at = SWITCH_ETHERNET + 20;
  const __be16 ip_length = bpf_htons(SWITCH_TRIM_BYTES - SWITCH_ETHERNET);
  const __be16 udp_length = bpf_htons(8 + SWITCH_TRIM_PAYLOAD), no_checksum = 0;
  __be16 old_length, old_first, first;
  if (bpf_skb_change_tail(skb, SWITCH_TRIM_BYTES, 0)) return -1;
  if (bpf_skb_load_bytes(skb, ip_at, &old_first, 2) || bpf_skb_load_bytes(skb, ip_at + 2, &old_length, 2)) return -1;
  first = (old_first & bpf_htons(0xff03)) | bpf_htons(SWITCH_TOP_CLASS << 5);
  if (bpf_l3_csum_replace(skb, ip_at + offsetof(struct iphdr, check), old_first, first, 2) ||
      bpf_l3_csum_replace(skb, ip_at + offsetof(struct iphdr, check), old_length, ip_length, 2) ||
      bpf_skb_store_bytes(skb, ip_at, &first, 2, 0) || bpf_skb_store_bytes(skb, ip_at + 2, &ip_length, 2, 0) ||
      bpf_skb_store_bytes(skb, udp_at + offsetof(struct udphdr, len), &udp_length, 2, 0)) {
    return -1;
  }
  /* 0 = none (RFC 768): the sender's sum covers bytes that are gone. */
  return bpf_skb_store_bytes(skb, udp_at + offsetof(struct udphdr, check), &no_checksum, 2, 0);
}

SEC("tc")
int to_host(struct __sk_buff* skb) {
  const __u32 port = skb->ifindex;
  const struct switch_rules* rules = bpf_map_lookup_elem(&port_rules, &port);
  struct switch_state* state = bpf_map_lookup_elem(&port_states, &port);
  struct packet packet;
  enum verdict verdict;
  __u64 now;
  if (!rules || !state) return TC_ACT_OK;
  look_at(skb, &packet);
  now = bpf_ktime_get_ns();
  bpf_spin_lock(&state->lock);
  verdict = admit(rules, state, &packet, now);
  bpf_spin_unlock(&state->lock);
  if (verdict == DROP) return TC_ACT_SHOT;
  skb->priority = SWITCH_LEAF + (verdict == TRIM ? SWITCH_TOP_CLASS : packet.class_);
  if (verdict == MARK) bpf_skb_ecn_set_ce(skb);
  if (verdict == TRIM && trim(skb)) {
    bpf_spin_lock(&state->lock);
    take_back(state, packet.class_, rules->rate);
    bpf_spin_unlock(&state->lock);
    return TC_ACT_SHOT;
  }
  return TC_ACT_OK;
}

SEC("tc")
int from_host(struct __sk_buff* skb) {
  const __u32 port = skb->ifindex;
  const struct switch_rules* rules = bpf_map_lookup_elem(&port_rules, &port);
  struct switch_state* state = bpf_map_lookup_elem(&port_states, &port);
  const __u64 bytes = skb->len;
  const int super_packet = skb->gso_segs > 1;
  __u64 now;
  int lost;
  if (!rules || !state) return TC_ACT_OK;
  now = bpf_ktime_get_ns();
  bpf_spin_lock(&state->lock);
  adopt(rules, state, now);
  lost = is_lost(&rules->loss[SWITCH_FROM_HOST], &state->loss[SWITCH_FROM_HOST], now);
  raise_to(&state->counters.from_largest, bytes);
  state->counters.from_super_packets += super_packet;
  if (lost) {
    state->counters.from_lost += 1;
  } else {
    state->counters.from_packets += 1;
    state->counters.from_bytes += bytes;
  }
  bpf_spin_unlock(&state->lock);
  return lost ? TC_ACT_SHOT : TC_ACT_OK;
}

/* The verifier lets only programs under such a licence change packets by these helpers. */
char licence[] SEC("license") = "Dual BSD/GPL";
