/* Sums a vector over some processes. In one shell each:
 *   ./example 0 2 127.0.0.1:29500
 *   ./example 1 2 127.0.0.1:29500 */
#include <clustar/paraexpress.h>
#include <stdio.h>
#include <stdlib.h>

static float values[1 << 20];

int main(int argc, char** argv) {
  if (argc != 4) return fprintf(stderr, "usage: example RANK RANKS HOST:PORT\n"), 2;
  clustarPxOptions_v1 options = {.size = sizeof options, .rank = atoi(argv[1]), .ranks = atoi(argv[2]), .root = argv[3]};
  const size_t count = sizeof values / sizeof *values;
  for (size_t i = 0; i < count; ++i) values[i] = (float)(options.rank + 1);

  clustarPx_t comm;
  clustarPxOperation_t sum;
  int failed = clustarPxInit(&options, &comm);
  if (!failed) failed = clustarPxRegister(comm, values, sizeof values);
  if (!failed) failed = clustarPxAllReduce(comm, values, count, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &sum);
  /* Compute something else meanwhile. */
  if (!failed) failed = clustarPxWait(sum);
  if (failed) return fprintf(stderr, "rank %d: %s\n", options.rank, clustarPxLastError()), 1;
  printf("rank %d of %d: each element is %g\n", options.rank, options.ranks, values[count - 1]);
  return clustarPxFinalize(comm);
}
