// What an experiment finds: rows of named figures, one of which may have a bar.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace clustar::bench::sim {

struct Figure {
  std::string name;  // with its unit, as in JSON: p99_us
  double value = 0;
};

struct Bar {
  std::size_t figure = 0;  // which of the row's
  double limit = 0;
  bool at_least = false;  // otherwise at most
};

struct Row {
  std::string situation;
  std::string arm;
  std::vector<Figure> figures;
  std::optional<Bar> bar;

  Row(std::string in, std::string of) : situation(std::move(in)), arm(std::move(of)) {}
  Row& add(std::string name, double value) {
    figures.push_back({std::move(name), value});
    return *this;
  }
  // For the figure that was added last.
  Row& at_most(double limit) {
    bar = Bar{figures.size() - 1, limit, false};
    return *this;
  }
  Row& at_least(double limit) {
    bar = Bar{figures.size() - 1, limit, true};
    return *this;
  }
  bool met() const {
    if (!bar) return true;
    const double value = figures[bar->figure].value;
    return bar->at_least ? value >= bar->limit : value <= bar->limit;
  }
};

using Rows = std::vector<Row>;

}  // namespace clustar::bench::sim
