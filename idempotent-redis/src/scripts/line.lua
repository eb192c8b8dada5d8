#!lua flags=no-writes
-- Reads the order tables of streams. Reply: now (µs), then (index, answer) for each stream with a table: 'R' and the
-- table, 'E' and an error.
local t = redis.call('TIME')
local out = {t[1] * 1000000 + t[2]}
for i = 1, #KEYS do
  local cur = redis.pcall('GET', KEYS[i])
  if cur then
    out[#out + 1] = i
    out[#out + 1] = type(cur) == 'table' and 'E' .. cur.err or 'R' .. cur
  end
end
return out
