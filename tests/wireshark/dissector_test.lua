-- lua dissector_test.lua STUB DISSECTOR SAMPLES: runs the dissector over what mlt_samples printed.
local stub = dofile(arg[1])
stub.load(arg[2])

local failures, seen, packets, invalid = 0, {}, 0, 0
local function check(good, ...)
  if good then return end
  failures = failures + 1
  if failures <= 20 then print("FAILED", ...) end
end

local function values(abbr)
  local all = {}
  for _, one in ipairs(stub.added) do
    if one.abbr == abbr then all[#all + 1] = one.value end
  end
  return table.concat(all, " ")
end

local function malformed()
  for _, one in ipairs(stub.experts) do
    if one.severity == expert.severity.ERROR then return true end
  end
  return false
end

local function unhex(text) return (text:gsub("..", function(byte) return string.char(tonumber(byte, 16)) end)) end

local function compare(sample, pinfo)
  for abbr, expected in pairs(sample.fields) do
    local found = abbr == "@info" and pinfo.cols.info or values("clustar_mlt." .. abbr)
    check(found == table.concat(expected, " "), sample.name, abbr, "expected", table.concat(expected, " "), "found", found)
  end
end

-- Whatever was not captured, what was is not to blame.
local function try_cut(sample, bytes, length)
  for _, heuristic in ipairs({false, true}) do
    local accepted, pinfo = stub.dissect(bytes, heuristic, length)
    check(#stub.experts == 0, sample.name, "an expert info on a capture that was cut to", #bytes, "of", length)
    check(not accepted or #bytes == 0 or pinfo.cols.protocol == "MLT", sample.name, "cut: columns")
  end
end

local function try(sample)
  packets = packets + 1
  local bytes = unhex(sample.hex)
  stub.proto.prefs.length_byte = true
  if sample.length > #bytes then return try_cut(sample, bytes, sample.length) end
  local _, pinfo = stub.dissect(bytes)
  check(malformed() ~= sample.valid, sample.name, "malformed is", malformed(), sample.hex)
  for _, one in ipairs(stub.added) do seen[one.abbr] = true end
  if not sample.valid then
    invalid = invalid + 1
    local last = stub.experts[#stub.experts]
    local framing = last ~= nil and last.abbr == "clustar_mlt.malformed.framing"
    check(sample.name == "prefix" or framing == (sample.name == "wrong_framing"), sample.name, "framing", sample.hex)
    stub.dissect(bytes, true)  -- must not fail either
    return
  end
  compare(sample, pinfo)
  check(pinfo.cols.protocol == "MLT" and #pinfo.cols.info > 4, sample.name, "columns")
  local accepted, again = stub.dissect(bytes, true)
  check(accepted, sample.name, "the heuristic refused it")
  compare(sample, again)
  if sample.name == "mutant" or sample.name == "prefix" then return end
  check(#stub.experts == 0, sample.name, "an expert info on a good packet")
  local packed = bytes:byte(1) == 0
  -- A capture that was cut within the payload.
  if not packed and values("clustar_mlt.data.payload") ~= "" then
    check(stub.dissect(bytes:sub(1, -2), true, #bytes) and #stub.experts == 0, sample.name, "cut")
    stub.dissect(bytes:sub(1, -2), true)
    check(#stub.experts == 1 and not malformed(), sample.name, "a payload that is too short")
  end
  for cut = 0, #bytes - 1 do
    stub.dissect(bytes:sub(1, cut), true)
    try_cut(sample, bytes:sub(1, cut), #bytes)
  end
  stub.proto.prefs.length_byte = false
  for cut = 0, #bytes do stub.dissect(bytes:sub(1, cut), false, #bytes) end
  if packed then
    check(not stub.dissect(bytes, true), sample.name, "is not a packet without the byte of length")
    return
  end
  accepted, again = stub.dissect(bytes:sub(2), true)
  check(accepted and #stub.experts == 0, sample.name, "without the byte of length")
  compare(sample, again)
  check(not stub.dissect(bytes, true), sample.name, "with a byte that is not expected")
  stub.proto.prefs.length_byte = true
end

local samples = {}
for line in io.lines(arg[3]) do
  local name, valid, hex, length = line:match("^packet (%S+) ([01]) (%x+) (%d+)$")
  if name then
    samples[#samples + 1] = {name = name, valid = valid == "1", hex = hex, length = tonumber(length), fields = {}}
  else
    local abbr, value = line:match("^(%S+) (.*)$")
    local fields = samples[#samples].fields
    fields[abbr] = fields[abbr] or {}
    table.insert(fields[abbr], value)
  end
end
for _, sample in ipairs(samples) do try(sample) end

for _, field in ipairs(stub.proto.fields) do check(seen[field.abbr], field.abbr, "is in no sample") end
-- Text that begins like a packet does, and other people's traffic.
check(not stub.dissect("", true) and not stub.dissect("\1", true), "nothing is not MLT")
check(not stub.dissect(string.rep("\0", 200), true), "zeroes are not MLT")
check(not stub.dissect("\40\1\1\1" .. string.rep("\1", 196), true), "ones are not MLT")
for _, sample in ipairs(samples) do
  local bytes = unhex(sample.hex)
  if sample.name == "posted" then
    check(not stub.dissect(bytes .. "x", true), "a payload behind what has none")
    check(not stub.dissect(string.char(bytes:byte(1) + 1) .. bytes:sub(2) .. "x", true), "a longer header")
  end
end
stub.proto.prefs.heuristic = false
check(not stub.dissect(unhex(samples[1].hex), true), "the preference turns the heuristic off")
check(packets > 1000 and invalid > 300 and packets - invalid > 300, "few packets", packets, invalid)
print(packets .. " packets, " .. invalid .. " of them malformed, " .. failures .. " failures")
os.exit(failures == 0)
