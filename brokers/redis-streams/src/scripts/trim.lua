-- Trims the entries that every group has settled: up to the first entry that some group has pending or has not read.
if redis.replicate_commands then redis.replicate_commands() end
local function parts(id)
  local ms, seq = string.match(id, '^(%d+)-(%d+)$')
  return ms, seq
end
-- Compared as text, because a sequence number can have more digits than a Lua number represents exactly.
local function smaller(a, b)
  if #a ~= #b then return #a < #b end
  return a < b
end
local function before(a, b)
  local ams, aseq = parts(a)
  local bms, bseq = parts(b)
  if ams ~= bms then return smaller(ams, bms) end
  return aseq ~= bseq and smaller(aseq, bseq)
end
local lowest
for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
  local of = {}
  for at = 1, #group, 2 do of[group[at]] = group[at + 1] end
  local needed = of['last-delivered-id']
  local pending = redis.call('XPENDING', KEYS[1], of['name'])
  if pending[1] > 0 and before(pending[2], needed) then needed = pending[2] end
  if not lowest or before(needed, lowest) then lowest = needed end
end
if not lowest then return 0 end
return redis.call('XTRIM', KEYS[1], 'MINID', '~', lowest)
