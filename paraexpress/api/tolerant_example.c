/* Fits one number to data that each process has a part of, and does not wait for one that is slow. In one shell each:
 *   ./tolerant_example 0 3 127.0.0.1:29500
 *   ./tolerant_example 1 3 127.0.0.1:29500
 *   ./tolerant_example 2 3 127.0.0.1:29500 50     (each step takes it 50 ms) */
#include <clustar/paraexpress_tolerant.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char** argv) {
  if (argc < 4 || argc > 5) return fprintf(stderr, "usage: tolerant_example RANK RANKS HOST:PORT [MILLISECONDS]\n"), 2;
  clustarPxTolerantOptions_v1 options = {.size = sizeof options,
                                         .rank = atoi(argv[1]),
                                         .ranks = atoi(argv[2]),
                                         .root = argv[3],
                                         .buckets = 1,
                                         .deadline_us = 5000,
                                         .staleness = 16};
  const long pause_ms = argc == 5 ? atol(argv[4]) : 5;
  clustarPxTolerant_t group;
  int failed = clustarPxTolerantInit(&options, &group), skipped = 0;
  double guess = 0;
  for (int step = 0; !failed && step < 100; ++step) {
    int gives = 0;
    double gradient = 0;
    clustarPxTolerantRound_t round;
    failed = clustarPxTolerantShouldCompute(group, &gives);
    if (gives) {
      nanosleep(&(struct timespec){.tv_nsec = pause_ms % 1000 * 1000000, .tv_sec = pause_ms / 1000}, NULL);
      gradient = guess - (options.rank + 1); /* this process's data is its number */
    } else {
      ++skipped;
    }
    if (!failed) failed = clustarPxTolerantAllReduce(group, 0, &gradient, 1, CLUSTARPX_FLOAT64, gives, &round);
    if (!failed) failed = clustarPxTolerantWait(round, NULL);
    guess -= 0.1 * gradient / options.ranks;
  }
  if (failed) return fprintf(stderr, "rank %d: %s\n", options.rank, clustarPxLastError()), 1;
  printf("rank %d of %d: %.6f after 100 steps, %d left out\n", options.rank, options.ranks, guess, skipped);
  return clustarPxTolerantFinalize(group);
}
