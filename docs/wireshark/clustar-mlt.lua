-- Wireshark dissector of MLT, the loss-tolerant transport, as mlt/core/wire.h defines it, in the datagrams that
-- transport/io/udp/frame.h defines. README.md beside this file tells how to install it. Runs on Lua 5.1 to 5.4, so
-- without their differing bit operators.

local mlt = Proto("clustar_mlt", "Clustar MLT")

mlt.prefs.length_byte = Pref.bool("One byte of header length in front", true,
  "Over kernel UDP, and in files of PcapIo, a byte with the header's length precedes each packet; small packets share " ..
  "datagrams")
mlt.prefs.heuristic = Pref.bool("Look for MLT on every UDP port", true,
  "By version, type, exact lengths and reserved bytes; without it only port 61074 and Decode As")

local PORT = 61074  -- of PcapIo's files
local TYPES = {[1] = "DATA", [2] = "ACK", [3] = "POSTED", [4] = "STATE", [5] = "PROBE"}
local DATA, ACK, POSTED, STATE, PROBE = 1, 2, 3, 4, 5
local SIZE = {[DATA] = 38, [ACK] = 24, [POSTED] = 28, [STATE] = 32, [PROBE] = 95}  -- without what may follow
local VERSION, OPEN_SIZE, BLOCK_SIZE, MAX_BLOCKS, WINDOW = 8, 63, 20, 3, 512
local MAX_MESSAGE, MAX_PACKETS, MIN_SEGMENT, MAX_PPM = 2 ^ 30, 2 ^ 20, 64, 1000000
local PARITY_BLOCK, MAX_PARITY = 64, 16
local SEAL = 24  -- behind the header of a packet under a pre-shared key: counter and tag (mlt/driver/seal.h)
local MAX_HEADER, PADDING = 128, 0xff
local MAX_RANGES = 16  -- of missing packets, shown as text

local f = {}
local function field(name, make, ...) f[name] = make("clustar_mlt." .. name, ...) end
local function flag(name, label, mask, bits) field(name, ProtoField.bool, label, bits or 8, nil, mask) end

field("header_length", ProtoField.uint8, "Header length", base.DEC)
field("payload_length", ProtoField.uint16, "Payload length", base.DEC)
field("padding", ProtoField.bytes, "Padding")
field("version", ProtoField.uint8, "Version", base.DEC)
field("type", ProtoField.uint8, "Type", base.DEC, TYPES)
field("flags", ProtoField.uint8, "Flags", base.HEX)
field("reserved", ProtoField.bytes, "Reserved")
field("secret", ProtoField.uint64, "Connection secret", base.HEX)
field("message", ProtoField.uint32, "Message", base.DEC)
field("lane", ProtoField.uint8, "Lane", base.HEX)
field("lane.class", ProtoField.uint8, "Traffic class", base.DEC, nil, 0xe0)
field("lane.path", ProtoField.uint8, "Path", base.DEC, nil, 0x1f)
field("credit_units", ProtoField.uint32, "Credit (units of 64 bytes)", base.DEC)
field("finished_below", ProtoField.uint32, "Finished below", base.DEC)
field("message_bytes", ProtoField.uint32, "Message bytes", base.DEC)
field("segment", ProtoField.uint16, "Segment bytes", base.DEC)
field("sent_units", ProtoField.uint32, "Sent (units of 64 bytes)", base.DEC)
field("data.trip", ProtoField.uint16, "Round trip without queues (units of 16 us)", base.DEC)
field("tag", ProtoField.int32, "Tag", base.DEC)
field("tag_seq", ProtoField.uint32, "Tag sequence", base.DEC)
field("packets", ProtoField.uint32, "Packets of the message", base.DEC)

flag("data.retransmission", "Retransmission", 0x01)
flag("data.important", "Important", 0x02)
flag("data.ack_now", "Acknowledge at once", 0x04)
flag("data.has_open", "An open record follows", 0x08)
flag("data.quiet", "Nothing else of the message is on its way", 0x10)
flag("data.parity", "Parity", 0x20)
field("data.parity_block", ProtoField.uint32, "Block of the parity", base.DEC)
field("data.parity_row", ProtoField.uint32, "Row of the parity", base.DEC)
field("data.index", ProtoField.uint32, "Index", base.DEC)
field("data.path_seq", ProtoField.uint32, "Sequence on the lane", base.DEC)
field("data.passed", ProtoField.uint16, "First transmissions of the message on the lane (mod 2^16)", base.DEC)
field("data.payload", ProtoField.bytes, "Payload")

field("open", ProtoField.none, "Open record")
field("open.forgotten_below", ProtoField.uint32, "Forgotten below", base.DEC)
field("open.stage", ProtoField.uint16, "Stage of the reduce-scatter", base.DEC)
field("open.flags", ProtoField.uint8, "Flags", base.HEX)
flag("open.tolerant", "Tolerant", 0x01)
flag("open.identified", "The identity is known", 0x02)
flag("open.local_number", "The number is the sender's own", 0x04)
flag("open.exchange", "The terms are of an exchange", 0x08)
field("open.level", ProtoField.uint8, "Level (0 gets credit first)", base.DEC, nil, 0xf0)
field("open.communicator", ProtoField.uint64, "Communicator", base.HEX)
field("open.collective", ProtoField.uint32, "Collective", base.DEC)
field("open.ranks", ProtoField.uint16, "Ranks", base.DEC)
field("open.edges", ProtoField.uint16, "Network edges of the ring", base.DEC)
field("open.collective_bytes", ProtoField.uint64, "Collective bytes", base.DEC)
field("open.tolerance_ppm", ProtoField.uint32, "Tolerance (ppm)", base.DEC)
field("open.important", ProtoField.uint32, "Important packets", base.DEC)
field("open.number", ProtoField.uint64, "Number of the collective", base.DEC)
field("open.sender", ProtoField.uint16, "Sending rank (65535: not of a send)", base.DEC)
field("open.transfer", ProtoField.uint32, "Transfer of the channel", base.DEC)
field("open.channel", ProtoField.uint8, "Channel", base.DEC)
field("open.function", ProtoField.uint8, "Function", base.DEC)
field("open.datatype", ProtoField.uint8, "Data type", base.DEC)
field("open.algorithm", ProtoField.uint8, "Algorithm (15: unknown)", base.DEC, nil, 0xf0)
field("open.protocol", ProtoField.uint8, "Protocol (15: unknown)", base.DEC, nil, 0x0f)

field("ack.count", ProtoField.uint8, "Blocks", base.DEC)
field("ack.block", ProtoField.none, "Block")
field("ack.marked", ProtoField.uint16, "Marked so far (mod 2^16)", base.DEC)
field("ack.largest", ProtoField.uint32, "Largest sequence", base.DEC)
field("ack.before", ProtoField.uint64, "Arrived before it (bit i: largest - 1 - i)", base.HEX)
field("ack.missing", ProtoField.uint8, "Not arrived of those 64", base.DEC)
field("ack.waited_us", ProtoField.uint16, "Waited in the receiver's host before that (us)", base.DEC)
field("ack.delay_us", ProtoField.uint16, "Delay of the acknowledgement (us)", base.DEC)

field("posted.length", ProtoField.uint32, "Length", base.DEC)

flag("state.stop", "Stop: the message is over", 0x01)
flag("state.complete", "Nothing is missing", 0x02)
flag("state.matched", "It has its receive", 0x04)
flag("state.asks", "The receiver asks", 0x08)
field("state.base", ProtoField.uint32, "First packet of the window", base.DEC)
field("state.count", ProtoField.uint16, "Valid bits", base.DEC)
field("state.want", ProtoField.uint16, "Wanted of the missing", base.DEC)
field("state.bitmap", ProtoField.bytes, "Missing (bitmap)")
field("state.missing", ProtoField.uint16, "Missing packets in the window", base.DEC)
field("state.ranges", ProtoField.string, "Missing packets")

flag("probe.quiet", "All was sent, nothing is on its way", 0x01)
field("probe.sent", ProtoField.uint32, "Packets sent at least once", base.DEC)
field("probe.window", ProtoField.uint16, "The answer begins with this window of 512 packets", base.DEC)

field("seal", ProtoField.none, "Seal (pre-shared key)")
field("seal.counter", ProtoField.uint64, "Counter", base.DEC)
field("seal.tag", ProtoField.bytes, "Tag")

local fields = {}
for _, one in pairs(f) do fields[#fields + 1] = one end
mlt.fields = fields

local function malformed(name, label)
  return ProtoExpert.new("clustar_mlt.malformed." .. name, label, expert.group.MALFORMED, expert.severity.ERROR)
end
local e = {
  framing = malformed("framing", "The datagram is not framed as packets are"),
  version = malformed("version", "The version is not " .. VERSION),
  type = malformed("type", "There is no such type"),
  length = malformed("length", "The header's length fits no packet of this type"),
  reserved = malformed("reserved", "Reserved bytes or flags are not 0"),
  range = malformed("range", "A value is out of its range"),
  payload = ProtoExpert.new("clustar_mlt.payload", "The payload is not what the header says", expert.group.PROTOCOL,
    expert.severity.WARN),
}
mlt.experts = {e.framing, e.version, e.type, e.length, e.reserved, e.range, e.payload}

local function has(flags, bit) return math.floor(flags / bit) % 2 == 1 end
local function packet_count(bytes, segment)
  if bytes == 0 or segment == 0 then return 1 end
  return math.floor((bytes + segment - 1) / segment)
end
local function payload_bytes(index, bytes, segment) return math.max(0, math.min(segment, bytes - index * segment)) end
local function whole(number) return string.format("%.0f", number) end

-- One packet while it is taken apart: header from `at`, payload from `payload_at` (as it travels: under a pre-shared
-- key it may be encrypted), and `finish` is behind both.
local Packet = {}
Packet.__index = Packet
function Packet:range(offset, size) return self.tvb(self.at + offset, size) end
function Packet:uint(offset, size) return self:range(offset, size):uint() end
function Packet:add(tree, name, offset, size) return tree:add(f[name], self:range(offset, size)) end
function Packet:wrong(what, text)
  if text then self.tree:add_proto_expert_info(e[what], text) else self.tree:add_proto_expert_info(e[what]) end
end
function Packet:check(good, what, text) if not good then self:wrong(what, text) end end
function Packet:zero(tree, offset, size)
  self:add(tree, "reserved", offset, size)
  self:check(self:uint(offset, size) == 0, "reserved", "Byte " .. offset .. " of the header: reserved, and not 0")
end
function Packet:flags(most, names)
  local tree = self:add(self.tree, "flags", 2, 1)
  for _, name in ipairs(names) do self:add(tree, name, 2, 1) end
  local flags = self:uint(2, 1)
  self:check(flags <= most, "reserved", "There are no such flags")
  return flags
end
function Packet:lane(tree, offset)
  local lane = self:add(tree, "lane", offset, 1)
  self:add(lane, "lane.class", offset, 1)
  self:add(lane, "lane.path", offset, 1)
  local byte = self:uint(offset, 1)
  return "path " .. byte % 32 .. " class " .. math.floor(byte / 32)
end
-- Returns the number of packets.
function Packet:message_size(bytes_at, segment_at)
  self:add(self.tree, "message_bytes", bytes_at, 4)
  self:add(self.tree, "segment", segment_at, 2)
  local bytes, segment = self:uint(bytes_at, 4), self:uint(segment_at, 2)
  local packets = packet_count(bytes, segment)
  self.tree:add(f.packets, self:range(bytes_at, 4), packets):set_generated()
  self:check(bytes <= MAX_MESSAGE, "range", "A message has at most 2^30 bytes")
  self:check(segment >= MIN_SEGMENT, "range", "A segment has at least 64 bytes")
  self:check(packets <= MAX_PACKETS, "range", "A message has at most 2^20 packets")
  return packets
end
function Packet:open(at, packets)
  local tree = self:add(self.tree, "open", at, OPEN_SIZE)
  self:add(tree, "tag", at, 4)
  self:add(tree, "tag_seq", at + 4, 4)
  self:add(tree, "open.forgotten_below", at + 8, 4)
  self:add(tree, "open.stage", at + 12, 2)
  local flags = self:add(tree, "open.flags", at + 14, 1)
  for _, name in ipairs({"open.tolerant", "open.identified", "open.local_number", "open.exchange",
                           "open.level"}) do
    self:add(flags, name, at + 14, 1)
  end
  self:add(tree, "open.channel", at + 15, 1)
  self:add(tree, "open.communicator", at + 16, 8)
  self:add(tree, "open.collective", at + 24, 4)
  self:add(tree, "open.ranks", at + 28, 2)
  self:add(tree, "open.edges", at + 30, 2)
  self:add(tree, "open.collective_bytes", at + 32, 8)
  self:add(tree, "open.tolerance_ppm", at + 40, 4)
  self:add(tree, "open.important", at + 44, 4)
  self:add(tree, "open.number", at + 48, 6)
  self:add(tree, "open.sender", at + 54, 2)
  self:add(tree, "open.transfer", at + 56, 4)
  self:add(tree, "open.function", at + 60, 1)
  self:add(tree, "open.datatype", at + 61, 1)
  self:add(tree, "open.algorithm", at + 62, 1)
  self:add(tree, "open.protocol", at + 62, 1)
  local bits = self:uint(at + 14, 1)
  self:check(has(bits, 1) or not has(bits, 8), "reserved", "An exchange without terms")
  local anything = self:uint(at + 15, 1) + (has(bits, 4) and 1 or 0)
  for i = 48, 62 do anything = anything + self:uint(at + i, 1) end
  self:check(has(bits, 2) or anything == 0, "reserved", "The identity is not known, and not 0")
  self:check(self:uint(at + 40, 4) <= MAX_PPM, "range", "The tolerance is at most 1,000,000 ppm")
  self:check(self:uint(at + 44, 4) <= packets, "range", "More packets are important than the message has")
  local info = "tag " .. self:range(at, 4):int()
  if has(bits, 2) then
    info = info .. " function " .. self:uint(at + 60, 1) .. " transfer " .. self:uint(at + 56, 4)
  end
  return info .. (has(bits, 1) and " tolerant" or "")
end

local dissect = {}

dissect[DATA] = function(p)
  local flags = p:flags(63, {"data.retransmission", "data.important", "data.ack_now", "data.has_open", "data.quiet",
    "data.parity"})
  local parity = has(flags, 32)
  p:check(has(flags, 1) or not has(flags, 16), "reserved", "Only a retransmission says that nothing else is on its way")
  p:check(not parity or not (has(flags, 1) or has(flags, 2) or p:uint(30, 2) > 0), "reserved",
    "Parity is never sent again, important or counted")
  local lane = p:lane(p.tree, 3)
  p:add(p.tree, "secret", 4, 8)
  p:add(p.tree, "message", 12, 4)
  p:add(p.tree, "data.index", 16, 4)
  p:add(p.tree, "data.path_seq", 20, 4)
  local packets = p:message_size(24, 28)
  p:add(p.tree, "data.passed", 30, 2)
  p:add(p.tree, "sent_units", 32, 4)
  p:add(p.tree, "data.trip", 36, 2)
  local index, bytes, segment = p:uint(16, 4), p:uint(24, 4), p:uint(28, 2)
  local blocks = math.floor((packets + PARITY_BLOCK - 1) / PARITY_BLOCK)
  local block, row = math.floor(index / MAX_PARITY), index % MAX_PARITY
  if parity then
    p:check(packets > 1 and block < blocks, "range", "The message has no such block")
    p.tree:add(f["data.parity_block"], p:range(16, 4), block):set_generated()
    p.tree:add(f["data.parity_row"], p:range(16, 4), row):set_generated()
  else
    p:check(index < packets, "range", "The message has no packet of this index")
  end
  local what = parity and " parity " .. whole(block) .. "." .. whole(row) or " packet " .. index .. "/" .. whole(packets)
  local info = "message " .. p:uint(12, 4) .. what .. " " .. lane .. " seq " .. p:uint(20, 4)
  if has(flags, 8) then info = info .. " " .. p:open(SIZE[DATA], packets) end
  if has(flags, 1) then info = info .. " [retransmission]" end
  if has(flags, 2) then info = info .. " [important]" end

  local expected = parity and segment or payload_bytes(index, bytes, segment)
  local actual = p.finish - p.payload_at
  local captured = math.min(p.finish, p.tvb:len()) - p.payload_at
  if captured > 0 then p.tree:add(f["data.payload"], p.tvb(p.payload_at, captured)) end
  p:check(actual == expected, "payload", whole(actual) .. " bytes of payload; the header says " .. whole(expected))
  return info
end

-- Zeroes of a 64-bit field among its `valid` lowest bits.
local function zeroes(p, at, valid)
  local count = 0
  for bit = 0, valid - 1 do
    if not has(p:uint(at + 7 - math.floor(bit / 8), 1), 2 ^ (bit % 8)) then count = count + 1 end
  end
  return count
end

dissect[ACK] = function(p)
  p:zero(p.tree, 2, 2)
  p:add(p.tree, "secret", 4, 8)
  p:add(p.tree, "credit_units", 12, 4)
  p:add(p.tree, "finished_below", 16, 4)
  p:add(p.tree, "ack.count", 20, 1)
  p:zero(p.tree, 21, 3)
  local info = "finished below " .. p:uint(16, 4)
  for i = 0, p:uint(20, 1) - 1 do
    local at = SIZE[ACK] + i * BLOCK_SIZE
    local tree = p:add(p.tree, "ack.block", at, BLOCK_SIZE)
    local lane = p:lane(tree, at)
    p:zero(tree, at + 1, 1)
    p:add(tree, "ack.marked", at + 2, 2)
    p:add(tree, "ack.largest", at + 4, 4)
    p:add(tree, "ack.before", at + 8, 8)
    local largest = p:uint(at + 4, 4)
    -- A lane begins with sequence 0.
    local missing = zeroes(p, at + 8, math.min(64, largest))
    tree:add(f["ack.missing"], p:range(at + 8, 8), missing):set_generated()
    p:add(tree, "ack.delay_us", at + 16, 2)
    p:add(tree, "ack.waited_us", at + 18, 2)
    tree:append_text(": " .. lane .. ", largest " .. largest .. ", " .. missing .. " missing")
    info = info .. " | " .. lane .. " largest " .. largest .. " missing " .. missing
  end
  return info
end

dissect[POSTED] = function(p)
  p:zero(p.tree, 2, 2)
  p:add(p.tree, "secret", 4, 8)
  p:add(p.tree, "tag", 12, 4)
  p:add(p.tree, "tag_seq", 16, 4)
  p:add(p.tree, "posted.length", 20, 4)
  p:add(p.tree, "credit_units", 24, 4)
  p:check(p:uint(20, 4) <= MAX_MESSAGE, "range", "A message has at most 2^30 bytes")
  return "tag " .. p:range(12, 4):int() .. " seq " .. p:uint(16, 4) .. " length " .. p:uint(20, 4)
end

local function bitmap_bytes(valid) return math.floor((valid + 7) / 8) end

-- Of the bitmap's first `valid` bits: how many are set, and which packets that is; whether a later one is set.
local function read_bitmap(p, at, first, valid)
  local count, ranges, begin, beyond = 0, {}, nil, false
  local function close(last)
    if begin then ranges[#ranges + 1] = whole(begin) .. (last > begin and "-" .. whole(last) or "") end
    begin = nil
  end
  for i = 0, 8 * bitmap_bytes(valid) - 1 do
    local set = has(p:uint(at + math.floor(i / 8), 1), 2 ^ (7 - i % 8))
    if i >= valid then
      beyond = beyond or set
    elseif set then
      count = count + 1
      begin = begin or first + i
    else
      close(first + i - 1)
    end
  end
  close(first + valid - 1)
  local text = table.concat(ranges, ", ", 1, math.min(#ranges, MAX_RANGES))
  if #ranges > MAX_RANGES then text = text .. ", ..." end
  return count, text, beyond
end

dissect[STATE] = function(p)
  local flags = p:flags(15, {"state.stop", "state.complete", "state.matched", "state.asks"})
  p:zero(p.tree, 3, 1)
  p:add(p.tree, "secret", 4, 8)
  p:add(p.tree, "message", 12, 4)
  p:add(p.tree, "credit_units", 16, 4)
  p:add(p.tree, "state.base", 20, 4)
  p:add(p.tree, "state.count", 24, 2)
  p:add(p.tree, "state.want", 26, 2)
  p:add(p.tree, "finished_below", 28, 4)
  local first, valid, want = p:uint(20, 4), p:uint(24, 2), p:uint(26, 2)
  local length = bitmap_bytes(valid)
  if length > 0 then p:add(p.tree, "state.bitmap", 32, length) end
  local missing, text, beyond = read_bitmap(p, 32, first, valid)
  -- Of the count, where there is no bitmap.
  local at, bytes = length > 0 and 32 or 24, length > 0 and length or 2
  p.tree:add(f["state.missing"], p:range(at, bytes), missing):set_generated()
  p.tree:add(f["state.ranges"], p:range(at, bytes), text):set_generated()
  local stop, complete, asks = has(flags, 1), has(flags, 2), has(flags, 8)
  p:check(first + valid <= MAX_PACKETS, "range", "A message has at most 2^20 packets")
  p:check(want <= valid, "range", "More packets are wanted than the window has")
  p:check(not beyond, "range", "A bit beyond the valid ones is set")
  p:check(not complete or (stop and first == 0 and valid == 0), "range",
    "Where nothing is missing, the message is over and the window empty")
  p:check(not (asks and stop), "range", "The receiver asks about a message that is over")
  local info = "message " .. p:uint(12, 4)
  if stop then info = info .. " STOP" end
  if complete then info = info .. " complete" end
  if asks then info = info .. " asks" end
  if not complete then info = info .. " missing " .. missing .. " of " .. first .. "+" .. valid .. " want " .. want end
  return info
end

dissect[PROBE] = function(p)
  local settled = p:flags(1, {"probe.quiet"}) % 2 == 1
  p:zero(p.tree, 3, 1)
  p:add(p.tree, "secret", 4, 8)
  p:add(p.tree, "message", 12, 4)
  p:add(p.tree, "probe.sent", 16, 4)
  local packets = p:message_size(20, 24)
  p:add(p.tree, "probe.window", 26, 2)
  p:add(p.tree, "sent_units", 28, 4)
  p:check(p:uint(26, 2) * WINDOW < packets, "range", "The message has no such window")
  local sent = p:uint(16, 4)
  p:check(sent <= packets, "range", "More packets were sent than the message has")
  p:check(not settled or sent == packets, "range", "All was sent, and less than all")
  local open = p:open(32, packets)
  return "message " .. p:uint(12, 4) .. " sent " .. sent .. "/" .. whole(packets) .. (settled and " settled " or " ") ..
    open
end

-- Where the packet lies that begins at `begin`: its header at `at`, of `header` bytes (nil: its type tells), and all of
-- it before `finish`. Or nil and what is wrong with the framing; nil alone where the capture was cut.
local function frame_at(tvb, begin)
  local captured, total = tvb:len(), tvb:reported_len()
  if not mlt.prefs.length_byte then return {begin = begin, at = begin, finish = total} end
  if begin >= captured then return nil end
  local packed = tvb(begin, 1):uint() == 0
  local at = begin + (packed and 4 or 1)
  if at >= total then return nil, "Nothing is behind the framing" end
  if at > captured then return nil end
  local header = tvb(packed and begin + 1 or begin, 1):uint()
  if header == 0 or header > MAX_HEADER then return nil, "A header has 1 to " .. MAX_HEADER .. " bytes, not " .. header end
  if at + header > total then return nil, "The header is longer than the rest of the datagram" end
  local finish = packed and at + header + tvb(begin + 2, 2):uint() or total
  if finish > total then return nil, "The payload is longer than the rest of the datagram" end
  return {begin = begin, at = at, header = header, finish = finish, packed = packed}
end

-- The header's length by its first bytes. Or nil, and true where the capture was cut within it.
local function header_size(tvb, frame)
  local at, left, captured = frame.at, frame.finish - frame.at, math.min(frame.finish, tvb:len()) - frame.at
  local function byte(offset) return tvb(at + offset, 1):uint() end
  if captured < 3 then return nil, left > captured end
  local kind = byte(1)
  local size = SIZE[kind]
  if byte(0) ~= VERSION or size == nil or left < size then return nil, false end
  if kind == DATA and has(byte(2), 8) then size = size + OPEN_SIZE end
  if kind == ACK then
    if captured <= 20 then return nil, true end
    if byte(20) > MAX_BLOCKS then return nil, false end
    size = size + byte(20) * BLOCK_SIZE
  end
  if kind == STATE then
    if captured <= 25 then return nil, true end
    local valid = byte(24) * 256 + byte(25)
    if valid > WINDOW then return nil, false end
    size = size + bitmap_bytes(valid)
  end
  if left < size then return nil, false end
  if captured < size then return nil, true end
  return size
end

-- Bytes of the seal behind a header of `size` bytes: SEAL or 0. Without the byte of length it is what is left over.
local function seal_size(tvb, frame, size)
  if frame.header then return frame.header == size + SEAL and SEAL or 0 end
  local at, beyond = frame.at, frame.finish - frame.at - size
  if tvb(at + 1, 1):uint() == DATA then
    local index, bytes, segment = tvb(at + 16, 4):uint(), tvb(at + 24, 4):uint(), tvb(at + 28, 2):uint()
    beyond = beyond - (has(tvb(at + 2, 1):uint(), 32) and segment or payload_bytes(index, bytes, segment))
  end
  return beyond == SEAL and SEAL or 0
end

-- What is wrong where the framing and the type of a packet do not agree; nil if they do.
local function wrong_length(frame, kind, size, seal)
  if frame.header and frame.header ~= size + seal then
    return "The header of such a packet has " .. size .. " bytes, or " .. size + SEAL .. " with its seal"
  end
  if kind ~= DATA and frame.finish ~= frame.at + size + seal then return "Such a packet has no payload" end
end

-- Returns the packet's part of the info column.
local function dissect_packet(tvb, frame, root)
  local captured = math.min(frame.finish, tvb:len())
  local tree = root:add(mlt, tvb(frame.begin, captured - frame.begin))
  local p = setmetatable({tvb = tvb, at = frame.at, finish = frame.finish, tree = tree}, Packet)
  if frame.header then tree:add(f.header_length, tvb(frame.begin + (frame.packed and 1 or 0), 1)) end
  if frame.packed then tree:add(f.payload_length, tvb(frame.begin + 2, 2)) end
  if captured < frame.at + 2 then
    p:check(frame.finish >= frame.at + 2, "length")
    return captured < frame.finish and "[cut]" or "[too short]"
  end
  p:add(tree, "version", 0, 1)
  p:add(tree, "type", 1, 1)
  local kind = p:uint(1, 1)
  local name = TYPES[kind] or ("type " .. kind)
  p:check(p:uint(0, 1) == VERSION, "version")
  p:check(TYPES[kind] ~= nil, "type")
  local size, cut = header_size(tvb, frame)
  if size == nil then
    if not cut and p:uint(0, 1) == VERSION and TYPES[kind] then p:wrong("length") end
    return name .. (cut and " [cut]" or "")
  end
  local seal = seal_size(tvb, frame, size)
  local problem = wrong_length(frame, kind, size, seal)
  p:check(problem == nil, "length", problem)
  p.payload_at = frame.at + (frame.header or size + seal)
  local info = name .. " " .. dissect[kind](p)
  if seal > 0 and captured >= frame.at + size + seal then
    local branch = p:add(tree, "seal", size, SEAL)
    p:add(branch, "seal.counter", size, 8)
    p:add(branch, "seal.tag", size + 8, 16)
  end
  tree:append_text(", " .. info)
  return info
end

function mlt.dissector(tvb, pinfo, root)
  local captured, total = tvb:len(), tvb:reported_len()
  if captured == 0 then return 0 end
  pinfo.cols.protocol = "MLT"
  local infos, begin = {}, 0
  while begin < total do
    local rest = begin < captured and tvb(begin, captured - begin)
    if mlt.prefs.length_byte and begin > 0 and rest and tvb(begin, 1):uint() == PADDING then
      local tree = root:add(mlt, rest)
      tree:append_text(", padding")
      tree:add(f.padding, rest)
      break
    end
    local frame, problem = frame_at(tvb, begin)
    if problem then
      local tree = root:add(mlt, rest)
      tree:append_text(", wrong framing")
      tree:add_proto_expert_info(e.framing, problem)
    end
    infos[#infos + 1] = frame and dissect_packet(tvb, frame, root) or problem and "[wrong framing]" or "[cut]"
    begin = frame and frame.finish or total
  end
  pinfo.cols.info = table.concat(infos, "; ")
  return captured
end

-- Offsets and sizes of what is reserved, after the first four bytes.
local RESERVED = {[ACK] = {21, 3}}

-- Strict, because it sees every UDP packet that no one else claims; about the first packet of the datagram only, so
-- that what is wrong behind it is shown.
local function looks_like_mlt(tvb)
  local frame = frame_at(tvb, 0)
  local size = frame and header_size(tvb, frame)
  if not size then return false end
  local at = frame.at
  local kind = tvb(at + 1, 1):uint()
  if wrong_length(frame, kind, size, seal_size(tvb, frame, size)) then return false end
  if kind ~= DATA and tvb(at + 3, 1):uint() ~= 0 then return false end
  if tvb(at + 2, 1):uint() > (kind == DATA and 63 or 15) then return false end
  local reserved = RESERVED[kind]
  return reserved == nil or tvb(at + reserved[1], reserved[2]):uint() == 0
end

mlt:register_heuristic("udp", function(tvb, pinfo, root)
  if not mlt.prefs.heuristic or not looks_like_mlt(tvb) then return false end
  mlt.dissector(tvb, pinfo, root)
  return true
end)
DissectorTable.get("udp.port"):add(PORT, mlt)
