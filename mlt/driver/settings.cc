#include "mlt/driver/settings.h"

#include "transport/io/packet_ios.h"

namespace clustar {
namespace {

Setting<MltSettings> io_setting() {
  std::vector<std::string> names;
  for (const PacketIoKind& kind : kPacketIos) names.emplace_back(kind.name);
  return setting::make_choice("io", &MltSettings::io, names);
}

Setting<MltSettings> engines_setting() {
  return {{"engines", "auto | a number from 1 to 16", {}, {}, false},
          [](MltSettings& settings, const std::string& text) {
            const auto value =
                text == "auto" ? std::optional<std::uint32_t>(0) : setting::number<std::uint32_t>(text, 1, 16);
            settings.engines = value.value_or(0);
            return value.has_value();
          },
          [](const MltSettings& settings) {
            return settings.engines == 0 ? std::string("auto") : std::to_string(settings.engines);
          }};
}

Setting<MltSettings> important_setting() {
  return {{"loss_important", "0, or a fraction from 0.000001 to 0.5", {}, {}, false},
          [](MltSettings& settings, const std::string& text) {
            const auto ppm = setting::share_ppm(text, 0.5);
            if (ppm) settings.loss_important_ppm = *ppm;
            return ppm.has_value();
          },
          [](const MltSettings& settings) { return setting::share_text(settings.loss_important_ppm); }};
}

}  // namespace

const TypedTable<MltSettings>& MltSettings::table() {
  static const TypedTable<MltSettings> all({
      io_setting().help(
          "what carries the packets of `mlt`: `udp`, or queue pairs of RDMA NICs, `verbs_ud`, `verbs_uc` "
          "([verbs.md](verbs.md)), or libfabric's datagrams, `ofi` ([libfabric.md](libfabric.md)), or `udp`'s "
          "datagrams past "
          "the kernel, `dpdk` ([dpdk.md](dpdk.md)), whose peers may have `udp`; an error with any other transport"),
      setting::make_choice("engine", &MltSettings::engine, {"auto", "inline", "thread"})
          .help(
              "what runs `mlt`: `inline` only the calls of NCCL's proxy; `thread` only a thread per device; `auto` "
              "the calls, and the thread when none came for 1 ms or they come more than 1 ms apart; "
              "[measured](results/gpu-2026-11-27.md): leave it at `auto`, or try `thread` where ranks have processors "
              "to spare (two ranks on 16: NCCL's all-reduce took half the time; eight ranks on two: three times as "
              "long); `inline` is for comparisons on lines that lose nothing: a process whose NCCL is idle "
              "answers nobody, and its peer's last send may wait until it calls again"),
      engines_setting().help(
          "how many threads of NCCL may move bytes of `mlt` over one device at once: each communicator keeps to one "
          "engine, which has sockets, receive buffers and a thread of its own; with `CLUSTAR_ENGINE=thread` "
          "connections "
          "are spread one by one, except those that may lose; more of them only where each thread that polls has a "
          "processor ([measured](results/mlt-wire-2026-11-21.md)); `auto`: one for every two processors that the "
          "process may use, shared among its devices, at most 8, and a single one below 8 processors; before "
          "NCCL 2.28 all communicators are one, and more do nothing; one where `CLUSTAR_SEND_ORDER` sends some before "
          "others"),
      setting::make_choice("parity", &MltSettings::parity, {"auto", "off"})
          .help("`auto`: where a lost packet would cost a round trip of 2 ms or more, `mlt` adds parity packets from "
                "which the receiver rebuilds lost ones, as many as the measured loss requires; host memory only, and "
                "both ends need `libclustar-fec.so` beside the plugin; `off`: never"),
      important_setting().help(
          "the fraction of the packets of messages that may lose some which `mlt` does not lose: those with the "
          "largest gradients, by a sample of each packet's values. They have a class of their own and are sent again "
          "where they are lost. It needs `mlt`, and messages that may lose (`CLUSTAR_LOSS_RULES`). Of float, half and "
          "bfloat16 in host memory; where the data lies on a GPU, or NCCL does not say what it is, nothing is marked "
          "([loss.md](loss.md))"),
      Setting<MltSettings>{{"psk_file", "the path of a file that only its owner may read", {}, "none", false},
                           [](MltSettings& settings, const std::string& text) {
                             settings.psk_file = text;
                             return !text.empty();  // which would pass for no protection
                           },
                           [](const MltSettings& settings) { return settings.psk_file; }}
          .help("file with the secret that all ranks share (16 to 4,096 bytes, mode 600): every packet is "
                "authenticated, strangers are dropped; takes `mlt`, and is an error with a transport that does not "
                "protect ([security.md](security.md))"),
      setting::make_choice("psk_mode", &MltSettings::psk_mode, {"authenticate", "encrypt"})
          .help("`authenticate`: payload travels in clear; `encrypt`: it does not. The same on all ranks; an error "
                "without `CLUSTAR_PSK_FILE`"),
  });
  return all;
}

}  // namespace clustar
