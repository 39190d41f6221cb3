#include "transport/tcp/settings.h"

namespace clustar {

const TypedTable<TcpSettings>& TcpSettings::table() {
  using S = TcpSettings;
  static const TypedTable<S> all(
      {
          setting::make_number("tcp_sockets", &S::sockets, 1, 16)
              .help("data sockets per connection (one more carries control); more give ECMP more to spread and cost "
                    "about a tenth where one path or one core is the limit (measured on veth)"),
          setting::make_bytes("tcp_eager_bytes", &S::eager_bytes, 0, 1 << 20)
              .help("largest message that may go ahead of its receive; the same on all ranks"),
          // The lower bound keeps small receives, whose clear-to-send may wait for company, from exhausting the window.
          setting::make_bytes("tcp_window_bytes", &S::window_bytes, 128 << 10, 64 << 20)
              .help("bytes per connection that may be ahead of their receives; the same on all ranks"),
          setting::make_bytes("tcp_chunk_bytes", &S::chunk_bytes, 4 << 10, 64 << 20)
              .help("longer messages are cut into chunks of this size and spread over the sockets"),
          setting::make_bytes("tcp_notsent_bytes", &S::notsent_bytes, 0, 1 << 30)
              .help("bytes that the kernel may hold unsent per socket (TCP_NOTSENT_LOWAT); the rest stays in the send "
                    "queue"),
          setting::make_text("tcp_congestion", &S::congestion, "a name in tcp_available_congestion_control")
              .otherwise("the kernel's")
              .help("congestion control of every socket, e.g. `cubic`"),
      },
      {.contradiction = [](const S& settings) -> std::string {
        return settings.eager_bytes > settings.window_bytes ? "tcp_eager_bytes must not exceed tcp_window_bytes" : "";
      }});
  return all;
}

}  // namespace clustar
