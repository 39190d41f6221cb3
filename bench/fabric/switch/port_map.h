/* What the eBPF program and the process that loads it have in common: rules, state and counters of one port, as they
 * lie in the program's two maps, both keyed by the port's ifindex. Plain C; probabilities are in parts of 2^32. */
#pragma once

#include <linux/bpf.h>
#include <linux/types.h>

#define SWITCH_CLASSES 8
#define SWITCH_TOP_CLASS 7
#define SWITCH_CERTAIN (1ULL << 32)
#define SWITCH_NEVER (~0ULL) /* drop_above of a class that is never dropped on purpose */
/* HTB's leaf class of class c is 1:1c (SWITCH_LEAF + c), as skb->priority names it. */
#define SWITCH_LEAF 0x00010010U
#define SWITCH_ETHERNET 14U
/* What trimming keeps of a UDP datagram: enough for a transport's own header. */
#define SWITCH_TRIM_PAYLOAD 96U
#define SWITCH_TRIM_BYTES (SWITCH_ETHERNET + 20U + 8U + SWITCH_TRIM_PAYLOAD)
#define SWITCH_NS_PER_S 1000000000ULL

enum switch_direction { SWITCH_TO_HOST, SWITCH_FROM_HOST, SWITCH_DIRECTIONS };

struct switch_class_rules {
  __u64 mark_min, mark_max; /* bytes of the class's depth, with the packet */
  __u64 mark_probability;   /* at mark_max; 0: the class is never marked */
  __u64 drop_above;         /* bytes of the port's depth, or SWITCH_NEVER */
  __u64 trim;               /* 0 or 1 */
};

struct switch_loss_rules {
  __u64 random;
  __u64 gilbert_elliott; /* 0 or 1 */
  __u64 to_bad, to_good, loss_good, loss_bad;
  __u64 burst_every_ns; /* 0: no bursts */
  __u64 burst_length_ns, burst_loss;
  __u64 burst_longest_ns, burst_highest_loss; /* 0: all are of that length, of that loss */
  __u64 burst_jitter_ns;
  __u64 dead; /* 0 or 1 */
};

/* Replaced as a whole by user space, never written by the program: a packet sees the old rules or the new ones. */
struct switch_rules {
  __u64 rate; /* bytes per second; 0: no queue */
  __u64 buffer;
  __u64 seed;  /* as asked for */
  __u64 salt;  /* of this port, so that ports with the same seed lose different packets */
  __u64 epoch; /* of the rules: another one makes the program start its random numbers and bursts again */
  __u64 counter_epoch;
  struct switch_class_rules classes[SWITCH_CLASSES];
  struct switch_loss_rules loss[SWITCH_DIRECTIONS];
};

struct switch_class_counters {
  __u64 packets, bytes; /* passed on, as the class they left in */
  __u64 marked;
  __u64 dropped_buffer, dropped_selective, dropped_loss;
  __u64 trimmed; /* came in this class, left in class 7 */
  __u64 largest, super_packets;
  __u64 deepest;
};

struct switch_counters {
  struct switch_class_counters classes[SWITCH_CLASSES]; /* towards the host */
  __u64 deepest;
  __u64 from_packets, from_bytes, from_lost, from_largest, from_super_packets;
};

struct switch_loss_state {
  __u64 random;
  __u64 origin_ns; /* when the first period of bursts began */
  __u64 burst_seed;
  __u64 bad;
};

/* Written by the program only, under the lock. */
struct switch_state {
  struct bpf_spin_lock lock;
  __u32 unused;
  __u64 epoch, counter_epoch;
  __u64 drained_ns; /* the virtual queue is drained up to here */
  __u64 fraction;   /* and so many 10^-9 bytes further */
  __u64 total;
  __u64 depth[SWITCH_CLASSES];
  __u64 mark_random;
  struct switch_loss_state loss[SWITCH_DIRECTIONS];
  struct switch_counters counters;
};

/* Lets the line carry what it can from class 7 down. `now` may lie before the last one: clocks are read before the
 * lock is taken. */
static inline __attribute__((always_inline)) void switch_drain(struct switch_state* state, __u64 rate, __u64 now) {
  __u64 elapsed, left, credit, taken;
  int class_, i;
  if (state->total == 0 || rate == 0) {
    if (now > state->drained_ns) state->drained_ns = now;
    state->fraction = 0;
    return;
  }
  if (now <= state->drained_ns) return;
  elapsed = now - state->drained_ns;
  state->drained_ns = now;
  /* Bounds the product below, whatever the time since the last packet. */
  left = state->total * SWITCH_NS_PER_S / rate + 1;
  if (elapsed > left) elapsed = left;
  credit = elapsed * rate + state->fraction;
  state->fraction = credit % SWITCH_NS_PER_S;
  credit /= SWITCH_NS_PER_S;
  for (i = 0; i < SWITCH_CLASSES; ++i) {
    class_ = SWITCH_TOP_CLASS - i;
    taken = state->depth[class_] < credit ? state->depth[class_] : credit;
    state->depth[class_] -= taken;
    state->total -= taken;
    credit -= taken;
  }
}
