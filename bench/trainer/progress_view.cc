#include "bench/trainer/progress_view.h"

#include <fmt/format.h>

#include <string>

namespace clustar::bench::trainer {
namespace {

constexpr std::size_t kBarWidth = 30;
constexpr std::chrono::milliseconds kRedraw{100};

const char* label(const Progress& progress) { return progress.emulated ? "  (emulated CUDA device)" : ""; }

}  // namespace

void ProgressView::show(const Progress& progress) {
  if (style_ == Style::kNone) return;
  if (progress.epoch_over) {
    clear();
    if (!progress.learns) {
      fmt::print(out_, "epoch {:>3}/{}  replayed  {:.0f} images/s\n", progress.epoch, progress.epochs,
                 progress.images_per_second);
      std::fflush(out_);
      return;
    }
    fmt::print(out_, "epoch {:>3}/{}  loss {:.4f}  held-out accuracy {:6.2f} %  {:.0f} images/s{}\n", progress.epoch,
               progress.epochs, progress.loss, 100 * progress.accuracy, progress.images_per_second, label(progress));
    std::fflush(out_);
    return;
  }
  const auto now = std::chrono::steady_clock::now();
  if (style_ != Style::kBar || now < redraw_at_ || progress.steps == 0) return;
  redraw_at_ = now + kRedraw;
  const std::size_t filled = kBarWidth * progress.step / progress.steps;
  fmt::print(out_, "\r\x1b[Kepoch {:>3}/{}  [{}{}]  {}  {:.0f} images/s{}", progress.epoch, progress.epochs,
             std::string(filled, '#'), std::string(kBarWidth - filled, '.'),
             progress.learns ? fmt::format("loss {:.4f}", progress.loss) : std::string("replayed"),
             progress.images_per_second, label(progress));
  std::fflush(out_);
  bar_is_up_ = true;
}

void ProgressView::clear() {
  if (!bar_is_up_) return;
  fmt::print(out_, "\r\x1b[K");
  std::fflush(out_);
  bar_is_up_ = false;
}

}  // namespace clustar::bench::trainer
