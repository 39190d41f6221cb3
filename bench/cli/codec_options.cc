#include "bench/cli/codec_options.h"

#include "bench/cli/options.h"

namespace clustar::bench::cli {

void add_codec_options(CLI::App& command, trainer::CodecOptions& codec) {
  const std::string group = "Gradient codecs (lossy, with error feedback)";
  command
      .add_option(
          "--codec", codec.codec,
          "What encodes each gradient bucket: none|onebit|topk. onebit: a sign per element and two means; topk: "
          "the largest elements. What a step leaves out is added to the next step's gradient [none]")
      ->transform(choice({"none", "onebit", "topk"}))
      ->group(group);
  command
      .add_option("--codec-path", codec.path,
                  "How an encoded bucket travels: gather|reduce. gather: small, by all-gather, which is always "
                  "reliable; reduce: decoded again, by the all-reduce, so that only what it does to training "
                  "shows and a tolerant transport applies [gather]")
      ->transform(choice({"gather", "reduce"}))
      ->group(group);
  command
      .add_option("--topk-fraction", codec.topk_fraction,
                  "Fraction of a bucket's elements that --codec topk sends; at least one")
      ->check(number_between(1e-9, 1.0))
      ->capture_default_str()
      ->group(group);
}

std::string codec_contradiction(const CLI::App& command, const trainer::TrainConfig& config) {
  using trainer::Codec;
  const Codec codec = config.codec.codec;
  const auto given = [&](const char* option) { return command.get_option(option)->count() > 0; };
  if (codec == Codec::kNone && given("--codec-path")) {
    return "--codec-path needs a codec; add --codec onebit or --codec topk";
  }
  if (codec != Codec::kTopK && given("--topk-fraction")) return "--topk-fraction is for --codec topk only";
  if (codec != Codec::kNone && config.no_communication) {
    return "--no-communication sends no gradients, so there is nothing to encode; leave --codec out";
  }
  return {};
}

}  // namespace clustar::bench::cli
