/* ParaExpress's tolerant contract: all-reduces of gradients that do not wait for late ranks, and may do without a
 * bounded part of what a lossy network loses (version CLUSTARPX_3 of libclustar-paraexpress.so).
 *
 * A round of a bucket ends once a quorum of ranks gave to it and its deadline is over. Its result is the sum, scaled by
 * how many gradients came, the same bits on all ranks. What a rank gave too late, or lost on its way, it keeps and
 * gives with its next round: what was summed and what is kept add up to all that was given. A rank that dies is an
 * error on all ranks that names it, and the group is of no further use then: finalize it. For anything but gradients
 * use clustar/paraexpress.h, whose contract is strict.
 *
 * A step, on every rank:
 *
 *   clustarPxTolerantShouldCompute(group, &gives);
 *   if (gives) compute(gradients);
 *   for each bucket: clustarPxTolerantAllReduce(group, bucket, gradients of it, count, type, gives, &round[bucket]);
 *   for each bucket: clustarPxTolerantWait(round[bucket], NULL);
 *   update(parameters, gradients);
 *
 * Status codes, datatypes and clustarPxLastError() are those of clustar/paraexpress.h. Any thread. */
#pragma once

#include <clustar/paraexpress.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef uint64_t clustarPxTolerant_t;      /* a group of ranks */
typedef uint64_t clustarPxTolerantRound_t; /* a started round */

/* The same on all ranks, but for rank and stall_ms: ranks that differ get an error that says in what. */
typedef struct {
  size_t size; /* of this struct */
  int rank;    /* 0 .. ranks - 1 */
  int ranks;   /* 1 .. 256 */
  /* Where they meet, as in clustarPxOptions_v1; one rank alone needs neither. */
  const char* root;
  const char* hosts;
  int buckets;       /* 1 .. 4096: what is summed by one all-reduce each */
  int quorum;        /* ranks that a round needs, 1 .. ranks; 0: all but one */
  int deadline_us;   /* how long it waits for more, from its first contribution on; 0 .. 2^31 - 1 */
  int staleness;     /* rounds in a row that may end without a rank before the others wait for it, 0 .. 1024 */
  int tolerance_ppm; /* what MLT (CLUSTAR_TRANSPORT=mlt) may lose of contributions: 0 .. 100,000 (10 %) */
  int plain;         /* 0: sums are scaled by ranks / gradients in them; 1: they are not */
  int stall_ms;      /* how long a round may stand still; 0: 60,000 */
} clustarPxTolerantOptions_v1;

/* Blocks until all ranks have met and connected, 30 s at most for the meeting. */
int clustarPxTolerantInit(const clustarPxTolerantOptions_v1* options, clustarPxTolerant_t* out);

/* Before each step, a round of each bucket. *should 0: this rank is late, and its gradients would be too. Then its
 * rounds of this step should give nothing: they bring the results, and give what this rank has kept. */
int clustarPxTolerantShouldCompute(clustarPxTolerant_t group, int* should);
/* The bucket's next round, in place: `count` elements (CLUSTARPX_FLOAT32, CLUSTARPX_FLOAT64), always as many of a
 * bucket, in any host memory, which is left alone until the wait returned. `gives` 0: the elements are not read. A
 * bucket that is none, or no elements, are an error of the wait; a round of a bucket whose last one was not waited for,
 * or of another count, fails all ranks. */
int clustarPxTolerantAllReduce(clustarPxTolerant_t group, int bucket, void* elements, size_t count, int datatype,
                               int gives, clustarPxTolerantRound_t* out);

typedef struct {
  size_t size;        /* of this struct; the caller sets it */
  uint64_t round;     /* of the bucket, from 0 */
  uint64_t given;     /* elements that this rank gave */
  uint64_t kept;      /* of them those that it keeps for the next round */
  uint32_t gradients; /* in the result: of the part that has fewest */
} clustarPxTolerantOutcome_v1;
/* Blocks. The handle has ended then. `out` may be null. */
int clustarPxTolerantWait(clustarPxTolerantRound_t round, clustarPxTolerantOutcome_v1* out);

/* For a restart: what this rank keeps of a bucket, between its rounds, as opaque bytes. `memory` null: *bytes becomes
 * how many there are; otherwise *bytes is how much room there is, and becomes how many were written. Restored in
 * another group, of as many ranks or not, before this rank's first round of the bucket there; several, also of ranks
 * that are no more, are added up. */
int clustarPxTolerantSave(clustarPxTolerant_t group, int bucket, void* memory, size_t* bytes);
int clustarPxTolerantRestore(clustarPxTolerant_t group, int bucket, const void* memory, size_t bytes);

/* Sends what others wait for, as long as they take it, stall_ms or 60 s at most; then waits a second for them to be
 * done. Rounds that have not ended fail, on all ranks. */
int clustarPxTolerantFinalize(clustarPxTolerant_t group);

#ifdef __cplusplus
}
#endif
