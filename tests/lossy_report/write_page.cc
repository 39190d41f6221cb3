// Writes the page of made-up figures to the path that it is given; its number of plots to standard output.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bench/lossy/report/page.h"
#include "bench/report/report.h"
#include "tests/lossy_report/fixture.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto page = clustar::bench::lossy_report::make_page(clustar::bench::lossy_report::made_up_document());
  if (const auto ok = clustar::bench::report::write_text(page.html, argv[1]); !ok) return 1;
  std::printf("%d\n", page.plots);
  return 0;
}
