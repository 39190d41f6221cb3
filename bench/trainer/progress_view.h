// Shows the progress of a run to a person: a bar on a terminal, otherwise one line per epoch. On standard error, so
// that standard output has results only.
#pragma once

#include <chrono>
#include <cstdio>

#include "bench/trainer/trainer.h"

namespace clustar::bench::trainer {

class ProgressView {
 public:
  enum class Style { kBar, kLines, kNone };
  explicit ProgressView(Style style, std::FILE* out = stderr) : style_(style), out_(out) {}
  ~ProgressView() { clear(); }
  ProgressView(const ProgressView&) = delete;
  ProgressView& operator=(const ProgressView&) = delete;

  void show(const Progress& progress);
  // Takes the bar away, before anything else is printed.
  void clear();

 private:
  Style style_;
  std::FILE* out_;
  bool bar_is_up_ = false;
  std::chrono::steady_clock::time_point redraw_at_{};
};

}  // namespace clustar::bench::trainer
