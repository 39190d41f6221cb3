-- As much of Wireshark's Lua interface as docs/wireshark/clustar-mlt.lua uses, which remembers what was added to the
-- tree. A use that Wireshark would refuse is an error here too: bytes that were not captured, fields that were not
-- registered or twice, numbers of no or too many bytes, columns that are no text. Needs Lua 5.3 or later for integers of 64 bits.

local stub = {added = {}, experts = {}, heuristics = {}, ports = {}}

base = {DEC = 1, HEX = 2}
expert = {group = {MALFORMED = 1, PROTOCOL = 2}, severity = {ERROR = 1, WARN = 2}}
Pref = {bool = function(_, default) return {default = default} end}
DissectorTable = {get = function() return {add = function(_, port, proto) stub.ports[port] = proto end} end}

local abbreviations = {}
local function register(abbr)
  assert(abbr:match("^[%w_.-]+$") and not abbreviations[abbr], "not a name, or one that is taken: " .. abbr)
  abbreviations[abbr] = true
end

local SIZES = {bool = {1, 2, 4}, uint8 = {1}, uint16 = {2}, uint32 = {4}, int32 = {4}, uint64 = {6, 8}}
ProtoField = {}
for _, kind in ipairs({"uint8", "uint16", "uint32", "int32", "uint64", "bool", "bytes", "string", "none"}) do
  ProtoField[kind] = function(abbr, label, _, _, mask)
    assert(type(label) == "string")
    register(abbr)
    return {abbr = abbr, kind = kind, mask = mask}
  end
end
ProtoExpert = {new = function(abbr, label, group, severity)
  assert(label and group and severity)
  register(abbr)
  return {abbr = abbr, severity = severity}
end}

local function range_of(bytes, at, size)
  at, size = math.tointeger(at), math.tointeger(size)
  assert(at and size and at >= 0 and size >= 0 and at + size <= #bytes, "bytes outside of what was captured")
  local range = {size = size}
  local function number()
    local value = 0
    for i = 1, size do value = value << 8 | bytes:byte(at + i) end
    return value
  end
  function range:uint() assert(size >= 1 and size <= 4); return number() end
  function range:int() assert(size == 1 or size == 2 or size == 4); return string.unpack(">i" .. size, bytes, at + 1) end
  function range:hex() return (bytes:sub(at + 1, at + size):gsub(".", function(c)
    return string.format("%02x", c:byte())
  end)) end
  return range
end

-- `reported` is longer than `bytes` where the capture was cut.
function stub.tvb(bytes, reported)
  local tvb = {}
  function tvb:len() return #bytes end
  function tvb:reported_len() return reported or #bytes end
  return setmetatable(tvb, {__call = function(_, at, size)
    at = at or 0
    return range_of(bytes, at, size or #bytes - at)
  end})
end

local function value_of(field, range)
  if field.kind == "bytes" then return range:hex() end
  if field.kind == "uint64" then return ("0"):rep(16 - 2 * range.size) .. range:hex() end
  if field.kind == "none" then return "" end
  if field.kind == "int32" then return tostring(range:int()) end
  local value = range:uint()
  if field.mask then
    value = value & field.mask
    local shifted = field.mask
    while shifted & 1 == 0 do value, shifted = value >> 1, shifted >> 1 end
  end
  return field.kind == "bool" and (value ~= 0 and "1" or "0") or tostring(value)
end

local Tree = {}
Tree.__index = Tree
function Tree:add(field, range, value)
  assert(stub.known[field], "not registered: " .. tostring(field.abbr))
  assert(type(range) == "table" and range.size, "not a range of bytes")
  if field.abbr then
    local sizes, fits = SIZES[field.kind], false
    for _, size in ipairs(sizes or {}) do fits = fits or size == range.size end
    assert(value ~= nil or not sizes or fits, field.abbr .. " over " .. range.size .. " bytes")
    if math.type(value) == "float" then value = math.tointeger(value) end
    table.insert(stub.added, {abbr = field.abbr, value = value ~= nil and tostring(value) or value_of(field, range)})
  end
  return setmetatable({}, Tree)
end
function Tree:add_proto_expert_info(which, ...)
  assert(select("#", ...) == 0 or type((...)) == "string", "nil is not the same as no text")
  assert(stub.known[which], "an expert that was not registered")
  table.insert(stub.experts, which)
  return self
end
function Tree:append_text(text) assert(type(text) == "string") end
function Tree:set_generated() return self end

local proto_methods = {register_heuristic = function(_, list, accept)
  assert(list == "udp")
  table.insert(stub.heuristics, accept)
end}
function Proto()
  local preferences = setmetatable({}, {__newindex = function(all, name, pref) rawset(all, name, pref.default) end})
  return setmetatable({prefs = preferences}, {__index = proto_methods})
end

function stub.load(path)
  dofile(path)
  local proto = assert(next(stub.ports) and stub.ports[next(stub.ports)], "the dissector registered no port")
  stub.known, stub.proto = {[proto] = true}, proto
  for _, list in ipairs({proto.fields, proto.experts}) do
    for _, one in ipairs(list) do stub.known[one] = true end
  end
end

-- Columns take text only.
local function columns()
  local texts = {}
  return setmetatable({}, {__index = texts, __newindex = function(_, name, text)
    assert((name == "info" or name == "protocol") and type(text) == "string", "no such column, or not a text")
    texts[name] = text
  end})
end

function stub.dissect(bytes, heuristic, reported)
  stub.added, stub.experts = {}, {}
  local pinfo, root = {cols = columns()}, setmetatable({}, Tree)
  if heuristic then
    local accepted = stub.heuristics[1](stub.tvb(bytes, reported), pinfo, root)
    assert(type(accepted) == "boolean")
    return accepted, pinfo
  end
  local used = stub.proto.dissector(stub.tvb(bytes, reported), pinfo, root)
  assert(math.type(used) == "integer" and used >= 0 and used <= #bytes)
  return true, pinfo
end

return stub
