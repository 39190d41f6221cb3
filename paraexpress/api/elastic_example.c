/* Processes that come and go, and sum a vector meanwhile. In one shell each, rank 1 within 30 s of rank 0, the last one
 * when you like:
 *   ./elastic_example 0 2 127.0.0.1:29500 1000
 *   ./elastic_example 1 2 127.0.0.1:29500 400         leaves after 400 steps
 *   ./elastic_example join 0 127.0.0.1:29500 600      joins, and leaves after 600 steps of its own
 * The last one that is there ends when it has done its steps. */
#include <clustar/paraexpress.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static float values[1 << 16];

int main(int argc, char** argv) {
  if (argc != 5) return fprintf(stderr, "usage: elastic_example RANK|join RANKS HOST:PORT STEPS\n"), 2;
  const int joins = strcmp(argv[1], "join") == 0, steps = atoi(argv[4]);
  clustarPxOptions_v1 options = {.size = sizeof options, .root = argv[3]};
  clustarPxPlace_v1 place = {.size = sizeof place, .rank = atoi(argv[1]), .ranks = atoi(argv[2])};
  clustarPx_t comm;
  if (!joins) options.rank = place.rank, options.ranks = place.ranks;
  int failed = joins ? clustarPxJoin(&options, 30000, &comm, &place) : clustarPxInit(&options, &comm);
  if (!failed) failed = clustarPxRegister(comm, values, sizeof values);
  if (!failed) printf("rank %d of %d\n", place.rank, place.ranks);
  for (int step = 1; !failed && step <= steps; ++step) {
    const size_t count = sizeof values / sizeof *values;
    for (size_t i = 0; i < count; ++i) values[i] = 1;
    clustarPxOperation_t sum;
    failed = clustarPxAllReduce(comm, values, count, CLUSTARPX_FLOAT32, CLUSTARPX_SUM, &sum);
    if (!failed) failed = clustarPxWait(sum);
    if (!failed && values[count - 1] != (float)place.ranks) return fprintf(stderr, "a wrong sum\n"), 1;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL); /* it computes something */
    if (failed || step == steps) break;
    failed = clustarPxResize(comm, &place);
    if (!failed && place.joined + place.left > 0) {
      printf("step %d: %d joined, %d left: rank %d of %d\n", step, place.joined, place.left, place.rank, place.ranks);
    }
  }
  if (!failed) failed = clustarPxLeave(comm);
  if (failed) return fprintf(stderr, "%s\n", clustarPxLastError()), 1;
  return printf("left after %d steps\n", steps), 0;
}
