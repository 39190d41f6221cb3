// The texts of metrics.h.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "bench/trainer/loss_report.h"
#include "bench/trainer/metrics.h"

namespace clustar::bench::trainer {
namespace {

using nlohmann::json;

std::string row(const std::string& name, const std::string& value) { return fmt::format("  {:<22}{}\n", name, value); }

std::string readable_bytes(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.2f} GB", bytes / 1e9);
  if (bytes >= 1e6) return fmt::format("{:.2f} MB", bytes / 1e6);
  if (bytes >= 1e3) return fmt::format("{:.1f} kB", bytes / 1e3);
  return fmt::format("{:.0f} B", bytes);
}

// 2678824 -> "2,678,824"
std::string grouped(std::uint64_t value) {
  std::string digits = std::to_string(value);
  for (std::size_t at = digits.size(); at > 3;) digits.insert(at -= 3, 1, ',');
  return digits;
}

bool without_communication(const json& results) { return results["config"]["no_communication"].get<bool>(); }

std::string transport_text(const json& results) {
  const json& transport = results["transport"];
  if (without_communication(results)) return "none (--no-communication: every rank trains apart)";
  if (transport.is_null()) return "none (one rank)";
  if (!results["nccl"].is_null()) {
    return fmt::format("{}, {} channel{}, {}", transport["name"].get<std::string>(), transport["channels"].get<int>(),
                       transport["channels"] == 1 ? "" : "s", transport["plugin"].get<std::string>());
  }
  const json over = transport.value("transport", json(nullptr));
  if (results["collective"] == "ps") {
    return fmt::format("{} ({}), server {}", over.get<std::string>(),
                       results["parameter_server"]["congestion_control"].get<std::string>(),
                       transport["device"].get<std::string>());
  }
  if (results["collective"] == "paraexpress") {
    return fmt::format("{}, device {}", over.get<std::string>(), transport["device"].get<std::string>());
  }
  return fmt::format("{}{} (net plugin v{}, device {}, {} channel{}), {}", transport["name"].get<std::string>(),
                     over.is_null() ? "" : " over " + over.get<std::string>(), transport["version"].get<int>(),
                     transport["device"].get<std::string>(), transport["channels"].get<int>(),
                     transport["channels"] == 1 ? "" : "s", transport["plugin"].get<std::string>());
}

std::string replicas_text(const json& results) {
  if (results["ranks"] == 1) return "one replica";
  const json& identical = results["replicas_identical"];
  if (identical.is_null()) return "not checked";
  const std::string check = results["config"]["check_equal"];
  if (!identical.get<bool>()) return "DIFFERENT";
  return check == "every" ? fmt::format("identical after each of {} steps", grouped(results["steps"]))
                          : "identical after each epoch";
}

std::string nccl_text(const json& nccl) {
  return fmt::format("NCCL {} on {}, {}", nccl["version"].get<std::string>(),
                     nccl["emulated"].get<bool>() ? std::string("an emulated device: its times mean nothing")
                                                  : nccl["device"].get<std::string>(),
                     nccl["library"].get<std::string>());
}

std::string plans_text(const json& results) {
  if (!results["tolerant"].is_null()) return "ParaExpress, tolerant: each rank adds up its part of all";
  std::string text = fmt::format("ParaExpress, plan {}", results["plan"].get<std::string>());
  const char* before = ": ";
  for (const json& planned : results["plans"]) {
    text += fmt::format("{}{} at {} bytes", std::exchange(before, ", "), planned["plan"].get<std::string>(),
                        grouped(planned["bytes"]));
  }
  if (const json& regions = results["regions"]; !regions.is_null() && !regions["found"].is_null()) {
    text += fmt::format("; {}", regions["found"].get<std::string>());
  }
  if (results["helpers"].is_null()) return text;
  const json& helpers = results["helpers"];
  return text + fmt::format("; {} of {} helpers at the end", helpers["left"].get<int>(), helpers["given"].get<int>());
}

std::string codec_text(const json& results) {
  const json& codec = results["config"]["codec"];
  std::string text = codec["name"];
  if (codec.contains("topk_fraction")) text += fmt::format(" {} %", 100 * codec["topk_fraction"].get<double>());
  text += codec["path"] == "gather" ? ", blobs by all-gather" : ", decoded and all-reduced in float32";
  return fmt::format("{}, {:.3f} s per rank", text, results["codec_s"].get<double>());
}

std::string precision_text(const json& results) {
  const json& scale = results["loss_scale"];
  std::string text = fmt::format("{}; weights in float32", results["precision"].get<std::string>());
  if (scale.is_null()) return text;
  return text + fmt::format("; {} loss scale, {:.9g} at the end; {} of {} steps skipped",
                            scale["scaling"].get<std::string>(), scale["final"].get<double>(),
                            grouped(scale["skipped_steps"]), grouped(results["steps"]));
}

std::string exchange_text(const json& results) {
  const std::string policy = results["missing_policy"];
  const auto missing = results["missing_contributions"].get<std::uint64_t>();
  const auto expected = results["expected_contributions"].get<std::uint64_t>();
  const double share = expected > 0 ? 100.0 * static_cast<double>(missing) / static_cast<double>(expected) : 0;
  const char* what = policy == "rescale"    ? "sums rescaled"
                     : policy == "residual" ? "added to the next step's gradient"
                                            : "taken as zero";
  return fmt::format("all-to-all; {} of {} contributions missing ({:.3f} %), {}", grouped(missing), grouped(expected),
                     share, what) +
         (results["lost_norm"].is_null()
              ? std::string()
              : fmt::format("; their norm {:.3f} % of the gradients'", 100 * results["lost_norm"].get<double>()));
}

std::string tolerance_text(const json& results) {
  const json& tolerant = results["tolerant"];
  const auto kept = results["missing_contributions"].get<std::uint64_t>();
  const auto given = results["expected_contributions"].get<std::uint64_t>();
  return fmt::format("{}; {:.3f} % of contributions a step or more later; late ranks left out {} steps",
                     tolerant["terms"].get<std::string>(),
                     given > 0 ? 100.0 * static_cast<double>(kept) / static_cast<double>(given) : 0,
                     grouped(tolerant["skipped_steps"]));
}

std::string communication_text(const json& results) {
  if (without_communication(results)) return "none: this throughput is a ceiling, its loss and accuracy mean nothing";
  if (results["ranks"] == 1) return "none";
  const bool overlaps = results["config"]["overlap_forward"].get<bool>();
  return fmt::format("{:.3f} s exposed ({:.3f} s before the first layer), {:.3f} s hidden behind backward{}",
                     results["exposed_comm_s"].get<double>(), results["front_wait_s"].get<double>(),
                     results["hidden_comm_s"].get<double>(), overlaps ? " and forward" : "");
}

std::string resumed_text(const json& resumed) {
  return fmt::format("after epoch {} of {}; what follows is of the epochs since", resumed["epochs"].get<int>(),
                     resumed["file"].get<std::string>());
}

std::string checkpoint_text(const json& checkpoint) {
  return fmt::format("{}, written {} times, {:.3f} s", checkpoint["file"].get<std::string>(),
                     grouped(checkpoint["written"]), checkpoint["seconds"].get<double>());
}

// Each line by itself says that no GPU was there.
std::string labelled(const std::string& text) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    all += text.substr(at, end - at) + (end > at ? "  [emulated]\n" : "\n");
    at = end + 1;
  }
  return all;
}

std::string summary_of(const json& results) {
  std::string text =
      fmt::format("\n{} on {}\n", results["model"].get<std::string>(), results["data_source"].get<std::string>());
  const json& config = results["config"];
  const json& replay = results["replay"];
  if (!replay.is_null()) text += row("replay", replay["label"].get<std::string>());
  text += row("model", fmt::format("{} ({}), {} parameters, {} bytes of gradients in {} bucket{}",
                                   results["model"].get<std::string>(), results["shape"].get<std::string>(),
                                   grouped(results["parameters"]), grouped(results["gradient_bytes"]),
                                   results["buckets"].size(), results["buckets"].size() == 1 ? "" : "s"));
  if (results["precision"] != "f32") text += row("precision", precision_text(results));
  if (!results["initial_buckets"].is_null()) {
    text += row("", fmt::format("rebuilt after the first step, which had {}", results["initial_buckets"].size()));
  }
  if (config["optimizer_sharding"] != "none") {
    text += row("optimiser's state", fmt::format("sharded ({}), {} bytes per rank", config["optimizer_sharding"],
                                                 grouped(results["momentum_bytes"])));
  }
  text += row("data", fmt::format("{} training, {} held-out examples", grouped(results["train_examples"]),
                                  grouped(results["held_out_examples"])));
  if (!results["damaged_files"].is_null()) {
    text += row("left out", fmt::format("{} damaged files; the first: {}", grouped(results["damaged_files"]["count"]),
                                        results["damaged_files"]["first"].get<std::string>()));
  }
  if (!results["resumed"].is_null()) text += row("resumed", resumed_text(results["resumed"]));
  text +=
      row("ranks", fmt::format("{}, global batch {}", results["ranks"].get<std::size_t>(), config["batch"].get<int>()));
  text += row("compute by", replay.is_null()
                                ? fmt::format("{}, one thread per rank", results["gemm"].get<std::string>())
                                : fmt::format("waiting {:.3f} s forward, {:.3f} s backward per step",
                                              replay["forward_s"].get<double>(), replay["backward_s"].get<double>()));
  text += row("transport", transport_text(results));
  if (!results["nccl"].is_null()) text += row("collectives by", nccl_text(results["nccl"]));
  if (results["collective"] == "paraexpress" && results["ranks"] != 1) {
    text += row("collectives by", plans_text(results));
  }
  if (results["collective"] == "ps") {
    text += row("collectives by", results["parameter_server"]["label"].get<std::string>());
  }
  if (!results["tolerant"].is_null()) text += row("tolerance", tolerance_text(results));
  for (const auto& [rank, factor] : results["slow"].items()) {
    text += row("slowed on purpose", fmt::format("rank {} computes {} times as long", rank, factor.get<double>()));
  }
  if (results["all_reduce"] == "all-to-all") text += row("all-reduce", exchange_text(results));
  if (!config["codec"].is_null()) text += row("gradient codec", codec_text(results));
  if (!results["inject_faults"].is_null()) {
    text += row("injected on purpose", results["inject_faults"].get<std::string>() + ", into what each rank sends");
  }
  text += row("throughput", fmt::format("{:.0f} images/s", results["images_per_second"].get<double>()));
  text +=
      row("time per rank", fmt::format("{:.3f} s training, of it {:.3f} s compute ({:.3f} s of that waiting for data)",
                                       results["train_s"].get<double>(), results["compute_s"].get<double>(),
                                       results["load_s"].get<double>()));
  text += row("communication", communication_text(results));
  for (const auto& [name, layer] : results["traffic"].items()) {
    text +=
        row(name + " all-to-alls", fmt::format("{} per rank, {} sent, {:.3f} s exposed", grouped(layer["exchanges"]),
                                               readable_bytes(layer["bytes_sent"]), layer["exposed_s"].get<double>()));
  }
  if (results["ranks"] != 1) {
    text += row("sent, all ranks", results["bytes_sent"].is_null()
                                       ? std::string("n/a (NCCL does not tell)")
                                       : fmt::format("{} in {} messages", readable_bytes(results["bytes_sent"]),
                                                     grouped(results["messages_sent"])));
  }
  for (const auto& [name, value] : loss_rows(results)) text += row(name, value);
  if (!results["accuracy"].is_null()) {
    // A loss that is not finite has become null on its way through JSON.
    const json& loss = results["loss"];
    text += row("loss", loss.is_number() ? fmt::format("{:.4f} (training, last epoch)", loss.get<double>())
                                         : std::string("not finite"));
    text += row("held-out accuracy", fmt::format("{:.2f} %", 100 * results["accuracy"].get<double>()));
  }
  text += row("replicas", replicas_text(results));
  if (!results["checkpoint"].is_null()) text += row("checkpoint", checkpoint_text(results["checkpoint"]));
  if (!results["failure"].is_null()) text += row("FAILED", results["failure"]);
  return text;
}

}  // namespace

std::string summary(const json& results) {
  const json& device = results["compute_device"];
  const bool emulated = !device.is_null() && device["emulated"].get<bool>();
  return emulated ? labelled(summary_of(results)) : summary_of(results);
}

namespace {

// rows x columns x channels
std::string shape_text(const json& shape) {
  return fmt::format("{}x{}x{}", shape[0].get<std::size_t>(), shape[1].get<std::size_t>(), shape[2].get<std::size_t>());
}

std::string tensor_names(const json& tensors) {
  constexpr std::size_t kListed = 8;
  const auto name = [&](std::size_t i) { return tensors[i].get<std::string>(); };
  if (tensors.size() > kListed) {
    return fmt::format("{} tensors, {} to {}", tensors.size(), name(0), name(tensors.size() - 1));
  }
  std::string names;
  for (std::size_t i = 0; i < tensors.size(); ++i) names += (names.empty() ? "" : ", ") + name(i);
  return names;
}

}  // namespace

std::string description(const json& results) {
  std::string text = fmt::format("{}: {}\n", results["model"].get<std::string>(), results["shape"].get<std::string>());
  text += row("parameters", grouped(results["parameters"]));
  text += row("gradient bytes",
              fmt::format("{} ({})", grouped(results["gradient_bytes"]), results["precision"].get<std::string>()));
  text += row("multiply-adds", grouped(results["multiply_adds"]) + " forward, of one example");
  for (const json& layer : results["layers"]) {
    text += row(layer["name"].get<std::string>(),
                fmt::format("{:<34}{:>16}{:>14}", layer["operation"].get<std::string>(), shape_text(layer["shape"]),
                            layer["parameters"] == 0 ? "" : grouped(layer["parameters"])));
  }
  std::size_t number = 0;
  for (const json& bucket : results["buckets"]) {
    text += row(fmt::format("bucket {}", ++number),
                fmt::format("{:>12} bytes: {}", grouped(bucket["bytes"]), tensor_names(bucket["tensors"])));
  }
  return text;
}

}  // namespace clustar::bench::trainer
